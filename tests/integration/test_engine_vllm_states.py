"""States of prompts that vLLM hands out and takes in, with SmolLM2-135M-Instruct in float32.

vLLM's connector is one for a process, so the engine that hands out is closed before the one that takes in is loaded.
"""

import gc
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from engine_calls import drain, tokens_by_task

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import EngineName
from exo.errors import Rejected
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, EngineOutput, FailedOutput, PrefillOutput
from exo.runner.kv.assembling import assembled
from exo.runner.kv.form import AttentionState, LayerState, Numbers, Piece, PromptState, arrays_of
from tests import builders
from tests.conftest import needs_mlx, needs_vllm

pytestmark = [needs_vllm, pytest.mark.filterwarnings("ignore")]  # of what vLLM and torch do

LENGTHS = (1, 31, 32, 33, 300, 900)
"""A block has 32 tokens."""
LAYERS = 30
BEGUN = 450
"""Tokens of the longest prompt that another request had too."""
A, B, C = TaskId("a"), TaskId("b"), TaskId("c")


def greedy(most: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=most)


GREEDY = greedy(64)


@dataclass(frozen=True, slots=True)
class Handed:
    """What an engine handed out of a prompt."""

    prompt: list[int]
    pieces: list[Piece]
    outputs: list[EngineOutput]

    @property
    def state(self) -> PromptState:
        return assembled(self.pieces, len(self.prompt) - 1)


@dataclass(frozen=True, slots=True)
class Giver:
    """What an engine did by itself."""

    handed: list[Handed]
    """Of its own prompts."""
    answers: dict[str, list[list[int]]]
    """To the prompts of each engine."""


@contextmanager
def loaded(name: EngineName, model: Path, cache: Path) -> Iterator[Engine]:
    made = make_engine(name, cache)
    made.load(builders.whole(embedded()), model, lambda done, total: None)
    try:
        yield made
    finally:
        made.close()


def prompts(engine: Engine, whose: str) -> list[list[int]]:
    """Of each length one, that begin differently."""
    return [text(engine, f"{length} stories of {whose}. ", length) for length in LENGTHS]


def text(engine: Engine, beginning: str, length: int) -> list[int]:
    words = "The old man walked to the sea, and the wind told him of ships and cities far away. " * 80
    return engine.tokenizer.encode_text(beginning + words)[:length]


def handed_out(engine: Engine, prompt: list[int]) -> Handed:
    pieces: list[Piece] = []
    engine.prefill(A, prompt, pieces.append)
    return Handed(prompt, pieces, drain(engine))


def own_answers(engine: Engine, given: Sequence[list[int]]) -> list[list[int]]:
    return in_order(given, answered(engine, [(prompt, None) for prompt in given]))


def answered(engine: Engine, given: Sequence[tuple[list[int], PromptState | None]]) -> list[EngineOutput]:
    """The outputs of all of them at once, and beside another request."""
    engine.submit(TaskId("beside"), text(engine, "Something else. ", 40), greedy(80))
    for prompt, state in given:
        engine.submit(task_of(prompt), prompt, GREEDY, None, state)
    return drain(engine)


def task_of(prompt: list[int]) -> TaskId:
    return TaskId(f"of {len(prompt)}")


def in_order(given: Sequence[list[int]], outputs: Sequence[EngineOutput]) -> list[list[int]]:
    """The answers to these prompts."""
    tokens = tokens_by_task(outputs)
    return [tokens[task_of(prompt)] for prompt in given]


def cached(outputs: Sequence[EngineOutput], task_id: TaskId) -> int:
    return max(one.cached for one in outputs if isinstance(one, PrefillOutput) and one.task_id == task_id)


def giver(name: EngineName, model: Path, cache: Path) -> Giver:
    with loaded(name, model, cache) as engine:
        handed = [handed_out(engine, prompt) for prompt in prompts(engine, name)]
        return Giver(handed, {whose: own_answers(engine, prompts(engine, whose)) for whose in ("vllm", "mlx")})


@pytest.fixture(scope="module")
def of_vllm(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Giver:
    return giver("vllm", embedded_model, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def of_mlx(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Giver:
    return giver("mlx", embedded_model, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def vllm(of_vllm: Giver, embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """It has not seen the prompts, and is loaded when `of_vllm` is closed."""
    with loaded("vllm", embedded_model, tmp_path_factory.mktemp("cache")) as engine:
        yield engine


@pytest.fixture(scope="module")
def mlx(of_mlx: Giver, embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """It has not seen the prompts."""
    with loaded("mlx", embedded_model, tmp_path_factory.mktemp("cache")) as engine:
        yield engine


def check_answers(engine: Engine, given: Sequence[Handed], expected: Sequence[list[int]]) -> None:
    """With the states of others an engine answers as by itself, and counts what it did not compute. One of them it has
    begun itself."""
    longest = given[-1].prompt
    assert engine.held(longest) == 0
    engine.submit(A, [*longest[:BEGUN], 5], greedy(1))
    drain(engine)
    assert BEGUN - 32 < engine.held(longest) <= BEGUN
    outputs = answered(engine, [(one.prompt, one.state) for one in given])
    prompts = [one.prompt for one in given]
    assert in_order(prompts, outputs) == list(expected)
    assert [cached(outputs, task_of(prompt)) for prompt in prompts] == [len(prompt) - 1 for prompt in prompts]


def test_states_of_vllm_make_vllm_answer_as_by_itself(vllm: Engine, of_vllm: Giver) -> None:
    assert vllm.exchanges == ""
    check_answers(vllm, of_vllm.handed[1:], of_vllm.answers["vllm"][1:])  # a prompt of one token has no state
    assert vllm.held(of_vllm.handed[-1].prompt) == LENGTHS[-1] // 32 * 32


def test_pieces_come_layer_by_layer_and_the_end_says_so(of_vllm: Giver) -> None:
    for one in of_vllm.handed[1:]:
        tokens = len(one.prompt) - 1
        starts = sorted({piece.start for piece in one.pieces})  # of each step one
        came = [(piece.start, piece.layer) for piece in one.pieces]
        assert came == [(start, layer) for start in starts for layer in range(LAYERS)]
        assert one.outputs[-1] == PrefillOutput(A, tokens, tokens, is_last=True)
    assert of_vllm.handed[0].pieces == []
    assert of_vllm.handed[0].outputs == [PrefillOutput(A, 0, 0, is_last=True)]


@needs_mlx
def test_states_of_mlx_make_vllm_answer_as_by_itself(vllm: Engine, of_mlx: Giver, of_vllm: Giver) -> None:
    check_answers(vllm, of_mlx.handed[1:], of_vllm.answers["mlx"][1:])


@needs_mlx
def test_states_of_vllm_make_mlx_answer_as_by_itself(mlx: Engine, of_mlx: Giver, of_vllm: Giver) -> None:
    check_answers(mlx, of_vllm.handed[1:], of_mlx.answers["vllm"][1:])


def test_what_the_prefix_cache_holds_is_handed_out_too_and_long_prompts_in_several_steps(vllm: Engine) -> None:
    first, second = (text(vllm, f"{name} came home. ", 1300) for name in ("Anna", "Boris"))
    vllm.submit(C, first[:BEGUN], greedy(1))
    drain(vllm)
    pieces: dict[TaskId, list[Piece]] = {A: [], B: [], C: []}
    vllm.prefill(A, first, pieces[A].append)
    vllm.prefill(B, second, pieces[B].append)
    outputs = drain(vllm)
    assert cached(outputs, A) == BEGUN // 32 * 32
    told = [one for one in outputs if isinstance(one, PrefillOutput) and one.task_id == B]
    done = [one.done for one in told]
    assert done == sorted(set(done))
    assert [one.is_last for one in told] == [*[False] * (len(told) - 1), True]
    assert len(told) > 1
    vllm.prefill(C, second, pieces[C].append)
    assert cached(drain(vllm), C) == 1299 // 32 * 32
    computed, kept = (assembled(pieces[task_id], 1299) for task_id in (B, C))
    assert assembled(pieces[A], 1299).tokens == 1299
    assert all(map(equal_up_to(1280), computed.layers, kept.layers))


def equal_up_to(tokens: int) -> Callable[[LayerState, LayerState], bool]:
    """Whether layers are the same bit by bit, in their first tokens."""

    def equal(one: LayerState, other: LayerState) -> bool:
        both = zip(arrays_of(one), arrays_of(other), strict=True)
        return all(mine and its and (mine.raw[:tokens] == its.raw[:tokens]).all() for mine, its in both)

    return equal


class Taker:
    """A sink that can be seen to be gone."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def take(self, piece: Piece) -> None:
        self.pieces.append(piece)


def test_a_cancelled_prefill_hands_out_no_more_and_nothing_of_it_is_kept(vllm: Engine) -> None:
    waiting, begun = Taker(), Taker()
    vllm.prefill(A, text(vllm, "Clara sang. ", 1500), begun.take)
    vllm.prefill(B, text(vllm, "David slept. ", 1500), waiting.take)
    vllm.step()
    came = len(begun.pieces), len(waiting.pieces)
    assert came[0] > 0
    vllm.cancel([A, B])
    assert vllm.in_flight == 0
    vllm.submit(A, text(vllm, "Frank laughed. ", 20), greedy(3))
    assert len(tokens_by_task(drain(vllm))[A]) == 3
    assert (len(begun.pieces), len(waiting.pieces)) == came
    gone = [weakref.ref(begun), weakref.ref(waiting)]
    del begun, waiting
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_a_state_is_kept_only_until_it_is_loaded(vllm: Engine, of_vllm: Giver) -> None:
    state = copied(of_vllm.handed[3].state)
    prompt = [*of_vllm.handed[3].prompt[:31], 7, 8]
    seen = [weakref.ref(layer.keys.raw) for layer in state.layers]
    vllm.submit(A, prompt, greedy(8), None, state)
    vllm.submit(B, prompt, greedy(8), None, state)
    vllm.cancel([B])
    vllm.step()
    del state
    gc.collect()
    assert vllm.in_flight == 1
    assert {one() is None for one in seen} == {True}
    drain(vllm)


def copied(state: PromptState) -> PromptState:
    """The same in arrays of its own."""
    layers = tuple(
        AttentionState(*(Numbers(one.dtype, one.raw.copy()) for one in (layer.keys, layer.values)))
        for layer in state.layers
    )
    return PromptState(state.tokens, layers)


def test_a_state_that_does_not_fit_is_left_with_both_numbers_and_the_prompt_is_computed(
    vllm: Engine, of_vllm: Giver, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = text(vllm, "Greta wrote a letter. ", 33)
    state = of_vllm.handed[3].state
    cut = replace(state, layers=state.layers[:-1])
    longer = of_vllm.handed[4].state
    with caplog.at_level(logging.WARNING):
        for wrong in (cut, longer):
            vllm.submit(A, prompt, greedy(2), None, wrong)
            outputs = drain(vllm)
            assert len(tokens_by_task(outputs)[A]) == 2
    assert "29 layers" in caplog.text
    assert "30 layers" in caplog.text
    assert "299 tokens" in caplog.text
    assert "has 33" in caplog.text


def test_what_cannot_be_computed_is_refused_and_leaves_no_sink(vllm: Engine) -> None:
    taker = Taker()
    gone = weakref.ref(taker)
    with pytest.raises(Rejected) as refused:
        vllm.prefill(A, [5] * 100_000, taker.take)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(Rejected) as refused:
        vllm.prefill(A, [], taker.take)
    assert refused.value.code == "empty_prompt"
    vllm.prefill(A, [5, 6], lambda piece: None)
    with pytest.raises(Rejected) as refused:
        vllm.prefill(A, [5, 6], taker.take)
    assert refused.value.code == "duplicate_task"
    assert not [one for one in drain(vllm) if isinstance(one, FailedOutput)]
    with pytest.raises(Rejected):
        vllm.prefill(A, [2**40, 5], taker.take)  # no such token
    del taker, refused
    gc.collect()
    assert gone() is None
