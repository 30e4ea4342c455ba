"""One generation, fed with chunks, events and the time."""

from exo.api.generations.generation import (
    ANSWER,
    GAP,
    GRACE,
    LONGEST,
    LOST,
    NOTE_EVERY,
    NOTE_FIRST,
    Generation,
    Item,
    Note,
)
from exo.api.metrics.meters import Meters
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import ChunkGenerated, EndPiece, Piece, PrefillPiece, TextPiece
from exo.domain.messages.events import GenerationFinished
from exo.domain.sampling import FinishReason, Timings, Usage

TASK = TaskId("t1")
END = EndPiece(finish_reason="stop", usage=Usage(), timings=Timings())


def opened() -> Generation:
    generation = Generation(TASK, ModelId("m"), 0.0, lambda: "waiting for m", Meters().pace(ModelId("m"), 0.0))
    generation.asked(0.0)
    return generation


def chunk(index: int, piece: Piece | str) -> ChunkGenerated:
    return ChunkGenerated(task_id=TASK, index=index, piece=TextPiece(text=piece) if isinstance(piece, str) else piece)


def finished(reason: FinishReason, code: str = "", error: str = "") -> GenerationFinished:
    return GenerationFinished(task_id=TASK, finish_reason=reason, code=code, error=error)


def shown(generation: Generation) -> list[str]:
    """What a reader gets now: texts as they are, an end as its reason or code, a note in brackets."""
    return [_shown(item) for item in generation.taken()]


def _shown(item: Item) -> str:
    match item:
        case TextPiece():
            return item.text
        case EndPiece():
            return item.code or item.finish_reason
        case Note():
            return f"[{item.text}]"


def test_chunks_come_out_in_order_and_once() -> None:
    generation = opened()
    for one in (chunk(0, "a"), chunk(2, "c"), chunk(0, "a"), chunk(1, "b"), chunk(2, "c"), chunk(3, END)):
        generation.receive(one, 1.0)
    assert shown(generation) == ["a", "b", "c", "stop"]
    assert generation.is_over
    assert generation.ended_elsewhere


def test_nothing_comes_after_the_end() -> None:
    generation = opened()
    generation.receive(chunk(0, END), 1.0)
    generation.receive(chunk(1, "late"), 1.0)
    generation.end("cancelled", "late")
    assert not generation.tick(LONGEST + 1)
    assert shown(generation) == ["stop"]


def test_a_gap_is_read_from_the_stream_after_a_moment() -> None:
    generation = opened()
    generation.receive(chunk(0, "a"), 1.0)
    generation.receive(chunk(2, "c"), 1.0)
    assert not generation.tick(1.0 + GAP / 2)
    assert generation.tick(1.0 + GAP)
    assert generation.next_index == 1
    generation.fetched([chunk(1, "b"), chunk(2, "c")], 2.0)
    assert not generation.tick(3.0)
    assert shown(generation) == ["a", "b", "c"]


def test_a_gap_that_closes_by_itself_is_left_alone() -> None:
    generation = opened()
    generation.receive(chunk(1, "b"), 1.0)
    generation.receive(chunk(0, "a"), 1.1)
    assert not generation.tick(1.0 + 2 * GAP)


def test_a_failure_that_the_master_decides_ends_it_at_once() -> None:
    generation = opened()
    generation.receive(chunk(0, "a"), 1.0)
    generation.finished(finished("error", "runner_failed", "the runner died"), 1.0)
    assert shown(generation) == ["a", "runner_failed"]
    assert generation.ended_elsewhere


def test_the_last_chunk_may_come_after_the_event() -> None:
    generation = opened()
    generation.receive(chunk(0, "a"), 1.0)
    generation.finished(finished("stop"), 1.0)
    assert not generation.tick(1.0 + GRACE / 2)
    generation.receive(chunk(1, END), 2.5)
    assert shown(generation) == ["a", "stop"]


def test_an_end_that_was_lost_is_read_from_the_stream() -> None:
    generation = opened()
    generation.receive(chunk(0, "a"), 1.0)
    generation.finished(finished("stop"), 1.0)
    assert generation.tick(1.0 + GRACE)
    generation.fetched([chunk(1, "b"), chunk(2, END)], 3.5)
    assert shown(generation) == ["a", "b", "stop"]


def test_an_end_that_the_stream_lost_too_is_an_error() -> None:
    generation = opened()
    generation.receive(chunk(0, "a"), 1.0)
    generation.finished(finished("stop"), 1.0)
    assert generation.tick(1.0 + GRACE)
    generation.fetched([], 3.5)
    assert shown(generation) == ["a", "output_lost"]


def test_a_stream_that_cannot_be_read_is_given_up() -> None:
    generation = opened()
    generation.finished(finished("stop"), 1.0)
    generation.tick(1.0 + LOST + 0.1)
    assert (shown(generation))[-1] == "output_lost"


def test_a_master_that_does_not_answer_is_not_waited_for() -> None:
    generation = opened()
    generation.tick(ANSWER)
    assert not generation.is_over
    generation.tick(ANSWER + 0.1)
    assert (shown(generation))[-1] == "no_master"
    assert not generation.ended_elsewhere


def test_an_accepted_generation_may_take_its_time_but_not_for_ever() -> None:
    generation = opened()
    generation.accept()
    generation.tick(LONGEST)
    assert not generation.is_over
    generation.tick(LONGEST + 1)
    assert (shown(generation))[-1] == "timeout"


def test_signs_of_life_come_only_in_silence() -> None:
    generation = opened()
    generation.accept()
    assert not generation.tick(NOTE_FIRST - 0.1)
    generation.tick(NOTE_FIRST)
    assert shown(generation) == ["[waiting for m]"]
    generation.tick(NOTE_FIRST + NOTE_EVERY - 0.1)
    generation.receive(chunk(0, PrefillPiece(done=512, total=2000)), 12.0)
    generation.tick(NOTE_FIRST + NOTE_EVERY)
    assert shown(generation) == ["[prefill 512/2000]"]
    generation.receive(chunk(1, "a"), 20.0)
    generation.tick(29.9)
    assert shown(generation) == ["a"]


def test_there_is_no_sign_of_life_before_a_master_has_taken_it_on() -> None:
    generation = opened()
    generation.tick(NOTE_FIRST + 1)
    generation.end("queue_full", "2000 requests wait already")
    assert shown(generation) == ["queue_full"]


def test_signs_of_life_do_not_pile_up_before_a_slow_reader() -> None:
    generation = opened()
    generation.accept()
    for second in range(100):
        generation.tick(float(second))
    assert shown(generation) == ["[waiting for m]"]


def test_a_reader_is_told_when_something_is_there() -> None:
    generation = opened()
    assert (generation.arrived.is_set(), generation.taken()) == (False, [])
    generation.receive(chunk(0, "a"), 1.0)
    assert (generation.arrived.is_set(), generation.taken()) == (True, [TextPiece(text="a")])
