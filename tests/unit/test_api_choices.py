"""Several generations read as one stream, and the payloads that they are made of."""

import asyncio

from exo.api.generations.choices import Choices, usage_together
from exo.api.generations.generation import NOTE_FIRST, Generation, Note
from exo.api.metrics.meters import Meters
from exo.api.openai.choice_requests import each_choice
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import ChunkGenerated, EndPiece, Piece, TextPiece
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams, Timings, Usage

END = EndPiece(finish_reason="stop", usage=Usage(), timings=Timings())


def generation(number: int) -> Generation:
    pace = Meters().pace(ModelId("m"), 0.0)
    return Generation(TaskId(f"t{number}"), ModelId("m"), 0.0, lambda: "waiting", pace)


def give(one: Generation, piece: Piece) -> None:
    one.receive(ChunkGenerated(task_id=one.task_id, index=one.next_index, piece=piece), 1.0)


def choices_of(count: int) -> Choices:
    return Choices([generation(number) for number in range(count)])


async def test_a21_what_comes_says_whose_it_is_and_all_ends_are_waited_for() -> None:
    choices = choices_of(3)
    for index in (2, 0):
        give(choices.generations[index], TextPiece(text=str(index)))
    first = await choices.items()
    assert [(index, getattr(item, "text", None)) for index, item in first] == [(0, "0"), (2, "2")]
    for one in choices.generations:
        assert not choices.is_over
        give(one, END)
        await choices.items()
    assert choices.is_over


async def test_a21_a_choice_that_comes_late_does_not_hold_up_the_others() -> None:
    choices = choices_of(2)
    reading = asyncio.create_task(choices.items())
    await asyncio.sleep(0)
    give(choices.generations[1], TextPiece(text="b"))
    assert [index for index, _ in await reading] == [1]
    reading = asyncio.create_task(choices.items())
    await asyncio.sleep(0)
    give(choices.generations[0], TextPiece(text="a"))
    assert [index for index, _ in await reading] == [0]


async def test_a21_after_a_failure_nothing_more_comes() -> None:
    choices = choices_of(2)
    choices.generations[0].end("engine_error", "no")
    give(choices.generations[1], TextPiece(text="b"))
    ((index, item),) = await choices.items()
    assert index == 0
    assert isinstance(item, EndPiece)
    assert choices.is_over


async def test_one_speaks_for_all_while_nothing_comes() -> None:
    choices = choices_of(3)
    give(choices.generations[0], END)
    await choices.items()
    for one in choices.generations:
        one.accept()
        one.tick(NOTE_FIRST)
    ((index, item),) = await choices.items()
    assert index == 1
    assert isinstance(item, Note)


def test_each_prompt_counts_once_and_each_answer_too() -> None:
    first = Usage(prompt_tokens=10, cached_tokens=2, completion_tokens=3)
    other = Usage(prompt_tokens=10, cached_tokens=9, completion_tokens=4, reasoning_tokens=1)
    second_prompt = Usage(prompt_tokens=5, completion_tokens=1)
    together = usage_together([first, other, second_prompt, second_prompt], 2)
    assert together == Usage(prompt_tokens=15, cached_tokens=2, completion_tokens=9, reasoning_tokens=1)


def test_a21_each_choice_draws_by_a_seed_of_its_own_and_the_first_by_the_requests() -> None:
    request = GenerationRequest(messages=(), params=SamplingParams(seed=7))
    payloads = each_choice(request, 3)
    seeds = [payload.params.seed for payload in payloads]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert each_choice(request, 3) == payloads
    assert each_choice(request, 1) == [request]
    assert [payload.replaced({"params": request.params}) for payload in payloads] == [request] * 3


def test_without_a_seed_the_choices_ask_for_the_same() -> None:
    request = GenerationRequest(messages=(), params=SamplingParams())
    assert each_choice(request, 2) == [request, request]
