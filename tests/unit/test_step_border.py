"""Ranks begin and end the same requests at the same steps, whenever each of them is told."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected, Retryable
from exo.runner.engines.base import EngineOutput, FailedOutput, TokenOutput
from exo.runner.engines.ranks import SOLO, Ranks
from exo.runner.engines.scripted import ScriptedEngine
from exo.runner.kv.form import Piece, PromptState
from exo.runner.step_border import StepBorder
from exo.runner.structured.guide import Guide
from tests import builders
from tests.ranks_as_threads import Together

SLOTS = 4
PATIENCE = 10.0


@dataclass
class CountingEngine(ScriptedEngine):
    """Gives each request its own number of tokens, one a step, and remembers what was asked of it before each step."""

    own_ranks: Ranks = SOLO
    running: dict[TaskId, int] = field(default_factory=dict[TaskId, int])
    history: list[tuple[str, TaskId, int]] = field(default_factory=list[tuple[str, TaskId, int]])
    steps: int = 0
    skew: int = 0

    @property
    def ranks(self) -> Ranks:
        return self.own_ranks

    @property
    def in_flight(self) -> int:
        return len(self.running)

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        guide: Guide | None = None,
        state: PromptState | None = None,
    ) -> None:
        if not prompt:
            raise Rejected("the prompt is empty", code="empty_prompt")
        self.history.append(("begin", task_id, self.steps))
        self.running[task_id] = len(prompt)

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        for task_id in task_ids:
            self.history.append(("end", task_id, self.steps))
            del self.running[task_id]

    def step(self) -> list[EngineOutput]:
        self.steps += 1
        outputs: list[EngineOutput] = []
        for task_id in list(self.running):
            self.running[task_id] -= 1
            over = self.running[task_id] == 0
            outputs.append(TokenOutput(task_id, self.running[task_id] + self.skew, "length" if over else None))
            if over:
                del self.running[task_id]
        return outputs


def name(number: int) -> TaskId:
    return TaskId(f"task-{number}")


def params() -> SamplingParams:
    return SamplingParams(temperature=0)


def test_one_rank_begins_at_once_and_ends_at_the_next_step() -> None:
    engine = CountingEngine()
    border = StepBorder(engine, SLOTS)
    assert border.idle
    border.tell(name(0), [1] * 5, params())
    assert not border.idle
    assert border.cross() == []
    border.note(engine.step())
    border.end([name(0)])
    assert border.cross() == []
    assert engine.history == [("begin", name(0), 0), ("end", name(0), 1)]
    assert border.idle


def test_what_the_engine_refuses_is_a_failed_output_and_holds_no_slot() -> None:
    engine = CountingEngine()
    border = StepBorder(engine, 1)
    border.tell(name(0), [], params())
    assert border.cross() == [FailedOutput(name(0), "empty_prompt", "the prompt is empty")]
    border.tell(name(1), [1], params())
    border.cross()
    assert list(engine.running) == [name(1)]


def test_no_more_run_than_there_are_slots() -> None:
    engine = CountingEngine()
    border = StepBorder(engine, 2)
    for number in range(3):
        border.tell(name(number), [1] * (number + 1), params())
    border.cross()
    assert list(engine.running) == [name(0), name(1)]
    border.note(engine.step())
    border.cross()
    assert list(engine.running) == [name(1), name(2)]


def test_a_prompt_whose_state_is_wanted_alone_holds_a_slot_until_all_of_it_is_handed_out() -> None:
    engine = ScriptedEngine()
    engine.load(builders.whole(builders.card(layers=2)), Path(), lambda done, total: None)
    border = StepBorder(engine, 1)
    pieces: list[Piece] = []
    border.tell_prefill(name(0), list(b"one"), pieces.append)
    border.tell(name(1), list(b"two"), params())
    outputs: list[EngineOutput] = []
    while not any(output.task_id == name(1) for output in outputs):
        border.cross()
        outputs = engine.step()
        border.note(outputs)
        assert engine.in_flight <= 1
    assert [piece.layer for piece in pieces] == [0, 1]


def test_a_request_that_was_ended_before_it_began_never_begins() -> None:
    engine = CountingEngine()
    border = StepBorder(engine, SLOTS)
    border.tell(name(0), [1], params())
    border.end([name(0)])
    assert border.cross() == []
    assert engine.history == []
    assert border.idle


@dataclass(frozen=True)
class Plan:
    """A request: its length, when each rank is told it, which rank cannot read it, and when rank 0 ends it."""

    length: int
    told: tuple[int, int, int]
    unreadable: int | None
    ended: int | None


plans = st.lists(
    st.builds(
        Plan,
        length=st.integers(1, 6),
        told=st.tuples(*[st.integers(0, 8)] * 3),
        unreadable=st.none() | st.integers(0, 2),
        ended=st.none() | st.integers(0, 12),
    ),
    max_size=6,
)


def run(
    rank: int, plan: Sequence[Plan], together: Together, skew: int = 0
) -> tuple[CountingEngine, list[EngineOutput]]:
    """One rank's thread: as the engine's thread of a runner, which is told things between steps."""
    engine = CountingEngine(own_ranks=together, skew=skew)
    border = StepBorder(engine, SLOTS)
    failed: list[EngineOutput] = []
    told, turn = 0, 0
    while told < len(plan) or not border.idle:
        while told < len(plan) and (border.idle or plan[told].told[rank] <= turn):
            if plan[told].unreadable == rank:
                border.refuse(name(told))
            else:
                border.tell(name(told), [1] * plan[told].length, params())
            told += 1
        if rank == 0:
            border.end([name(number) for number, one in enumerate(plan) if one.ended == turn])
        failed += border.cross()
        if engine.in_flight:
            border.note(engine.step())
        turn += 1
    return engine, failed


def run_all(plan: Sequence[Plan], skew: int = 0) -> list[tuple[CountingEngine, list[EngineOutput]]]:
    together = Together(3)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(run, rank, plan, together, skew if rank == 2 else 0) for rank in range(3)]
        return [future.result(PATIENCE) for future in futures]


@given(plans)
def test_ranks_do_the_same_at_the_same_steps_whenever_each_is_told(plan: list[Plan]) -> None:
    ranks = run_all(plan)
    histories = [engine.history for engine, _ in ranks]
    assert histories[0] == histories[1] == histories[2]
    begun = {task_id for kind, task_id, _ in histories[0] if kind == "begin"}
    for number, one in enumerate(plan):
        if one.unreadable is not None:
            assert name(number) not in begun
        elif one.ended is None:
            assert name(number) in begun


def test_what_one_rank_cannot_read_fails_on_the_others() -> None:
    ranks = run_all([Plan(3, (0, 0, 0), unreadable=2, ended=None)])
    failed = [[output.code for output in outputs if isinstance(output, FailedOutput)] for _, outputs in ranks]
    assert failed == [["unavailable"], ["unavailable"], []]


def test_ranks_that_compute_different_tokens_stop() -> None:
    with pytest.raises(Retryable, match="do not compute the same tokens"):
        run_all([Plan(6, (0, 0, 0), unreadable=None, ended=None)], skew=1)
