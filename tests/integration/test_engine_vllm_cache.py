"""Keys and values in vLLM get memory as they need it: beside an engine that has enough from the start."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from engine_calls import drain, prompt, tokens_by_task

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.models.catalog import embedded
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput
from exo.runner.engines.threads import ThreadShare
from exo.runner.engines.vllm.cache.policy import FEWEST, HEADROOM, PREFIXES_KEPT
from exo.runner.engines.vllm.engine import VllmEngine
from tests import builders
from tests.conftest import needs_vllm

pytestmark = [needs_vllm, pytest.mark.filterwarnings("ignore")]  # of what vLLM and torch do

CARD = embedded()
BLOCK_BYTES = CARD.kv_bytes(32)
SMALL = CARD.weight_bytes + 240_000_000
"""Bytes free before the weights are loaded, of which keys and values can get memory for some 4,000 tokens."""
ROOMY = 6 << 30
TOPICS = ("rain", "the sea", "bread", "a clock", "snow", "a train", "an old tree", "the moon")
GREEDY = SamplingParams(temperature=0, max_tokens=60)
SEEDED = SamplingParams(temperature=1, seed=5, max_tokens=60)
FILLING = "The rain had fallen for a week, and nobody went out. "


@dataclass
class Machine:
    """What an engine sees of the system."""

    free: int
    now: float = 0.0

    def engine(self, folder: Path) -> VllmEngine:
        """One that is loaded."""
        made = VllmEngine(ThreadShare(), lambda: self.free, lambda: self.now)
        made.load(builders.whole(CARD), folder, lambda done, total: None)
        return made


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine(SMALL)


@pytest.fixture(scope="module")
def loaded(machine: Machine, embedded_model: Path) -> Iterator[VllmEngine]:
    made = machine.engine(embedded_model)
    yield made
    made.close()


@pytest.fixture(scope="module")
def roomy(embedded_model: Path) -> Iterator[VllmEngine]:
    made = Machine(ROOMY).engine(embedded_model)
    yield made
    made.close()


@pytest.fixture
def engine(loaded: VllmEngine, machine: Machine) -> VllmEngine:
    """As it was when it was loaded, with nothing kept above its first size."""
    machine.free = SMALL
    machine.now += PREFIXES_KEPT
    loaded.rest()
    return loaded


def taken() -> int:
    """Bytes in use where keys and values are: on the GPU, or of this process."""
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return total - free
    return psutil.Process().memory_info().rss


def staggered(engine: VllmEngine, params: SamplingParams) -> Mapping[TaskId, Sequence[int]]:
    """The answers to eight requests, of which every one begins some steps after the one before."""
    outputs: list[EngineOutput] = []
    for topic in TOPICS:
        engine.submit(TaskId(topic), prompt(engine, f"{FILLING * 12}Write about {topic}."), params)
        outputs += [output for _ in range(3) for output in engine.step()]
    return tokens_by_task(outputs + drain(engine))


def cached(engine: VllmEngine, text: str) -> tuple[int, int]:
    """How many tokens of a prompt were kept, of how many."""
    engine.submit(TaskId("again"), prompt(engine, text), GREEDY)
    last = [output for output in drain(engine) if isinstance(output, PrefillOutput)][-1]
    return last.cached, last.total


@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_it_grows_while_requests_run_and_nothing_else_changes(
    engine: VllmEngine, roomy: VllmEngine, params: SamplingParams
) -> None:
    before, enough = engine.cache_bytes, roomy.cache_bytes
    answers = staggered(engine, params)
    assert answers == staggered(roomy, params)
    assert max(map(len, answers.values())) == 60
    assert engine.cache_bytes >= 2 * before
    assert roomy.cache_bytes == enough


def test_memory_is_there_when_it_is_needed_and_given_back_when_it_is_not(engine: VllmEngine, machine: Machine) -> None:
    few = engine.cache_bytes
    small: list[int] = []
    full: list[int] = []
    grown = 0
    for _ in range(3):  # the first time other things get memory too, and keep it
        engine.submit(TaskId("long"), [5] * 3000, SamplingParams(temperature=0, max_tokens=4))
        drain(engine)
        grown = engine.cache_bytes - few
        full.append(taken())
        machine.now += PREFIXES_KEPT
        engine.rest()
        small.append(taken())
        assert engine.cache_bytes == few
    assert grown > 60 * BLOCK_BYTES
    assert full[1] - small[0] == pytest.approx(grown, rel=0.3)
    assert full[2] - small[2] == pytest.approx(grown, rel=0.3)


def test_what_was_kept_is_still_there_after_it_grew(engine: VllmEngine) -> None:
    text = f"{FILLING * 30}What did they do?"
    cached(engine, text)
    before = engine.cache_bytes
    staggered(engine, GREEDY)
    assert engine.cache_bytes > before
    found, total = cached(engine, text)
    assert found > 0.9 * (total - 32)


def test_what_is_kept_stays_for_a_while_between_requests(engine: VllmEngine, machine: Machine) -> None:
    few = engine.cache_bytes
    text = f"{FILLING * 100}What did they do?"
    cached(engine, text)
    machine.now += PREFIXES_KEPT / 2
    engine.rest()
    found, total = cached(engine, text)
    assert found > 0.9 * total
    machine.now += PREFIXES_KEPT
    engine.rest()
    assert engine.cache_bytes == few
    found, _ = cached(engine, text)
    assert found * BLOCK_BYTES / 32 <= few


def test_where_others_need_memory_it_keeps_next_to_nothing(engine: VllmEngine, machine: Machine) -> None:
    machine.free = HEADROOM - 1
    engine.rest()
    assert engine.cache_bytes == FEWEST * BLOCK_BYTES


def test_where_memory_is_gone_requests_share_what_there_is(
    engine: VllmEngine, roomy: VllmEngine, machine: Machine
) -> None:
    machine.free = HEADROOM
    before = engine.cache_bytes
    assert staggered(engine, GREEDY) == staggered(roomy, GREEDY)
    assert engine.cache_bytes == before


def test_a_request_waits_for_memory_and_ends_as_it_would_have(
    engine: VllmEngine, roomy: VllmEngine, machine: Machine
) -> None:
    machine.free = HEADROOM
    text = f"{FILLING * 100}What did they do?"
    for one in (engine, roomy):
        one.submit(TaskId("long"), prompt(one, text), GREEDY)
    assert [engine.step() for _ in range(3)] == [[], [], []]
    machine.free = SMALL
    assert tokens_by_task(drain(engine)) == tokens_by_task(drain(roomy))


def test_a_request_that_outgrows_the_memory_goes_on_once_there_is_more(
    engine: VllmEngine, roomy: VllmEngine, machine: Machine
) -> None:
    machine.free = HEADROOM
    tokens = [7] * (engine.cache_bytes // BLOCK_BYTES * 32 - 40)
    for one in (engine, roomy):
        one.submit(TaskId("long"), tokens, GREEDY)
    outputs = engine.step()
    while more := engine.step():
        outputs += more
    assert 0 < len(tokens_by_task(outputs)[TaskId("long")]) < 60
    machine.free = SMALL
    assert tokens_by_task(outputs + drain(engine)) == tokens_by_task(drain(roomy))


def test_a_request_for_which_no_memory_becomes_free_fails_with_the_bytes(engine: VllmEngine, machine: Machine) -> None:
    machine.free = HEADROOM
    engine.submit(TaskId("long"), [5] * 3000, GREEDY)
    engine.submit(TaskId("short"), [5] * 30, GREEDY)
    assert engine.step() == []
    machine.now += 120
    (failed,) = engine.step()
    assert isinstance(failed, FailedOutput)
    assert (failed.task_id, failed.code) == (TaskId("long"), "insufficient_memory")
    assert f"take {94 * BLOCK_BYTES} bytes, and there are {engine.cache_bytes}" in failed.message
    assert f"with {HEADROOM} bytes free" in failed.message
    assert len(tokens_by_task(drain(engine))[TaskId("short")]) == 60


def test_a_request_is_judged_by_what_the_cache_may_become(engine: VllmEngine) -> None:
    assert engine.cache_bytes < 40 * BLOCK_BYTES
    with pytest.raises(Rejected, match=r"memory holds 4[0-9]{3}; ask for fewer"):
        engine.submit(TaskId("huge"), [5] * 5000, GREEDY)
    engine.submit(TaskId("fits"), [5] * 3900, SamplingParams(temperature=0, max_tokens=2))
    assert len(tokens_by_task(drain(engine))[TaskId("fits")]) == 2
