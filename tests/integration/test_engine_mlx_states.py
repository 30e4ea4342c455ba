"""What one MLX engine computed of a prompt, another one goes on with as if it had done so itself."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.engines.base import PrefillOutput
from exo.runner.engines.mlx.engine import MlxEngine
from exo.runner.engines.threads import ThreadShare
from exo.runner.kv.assembling import assembled
from exo.runner.kv.fetching import fetch
from exo.runner.kv.form import DTYPES, AttentionState, DType, Numbers, Piece, PromptState, WindowState
from exo.runner.kv.keys import new_key
from exo.runner.kv.serving import PrefillServer
from tests import tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.integration.engine_calls import drain as drain_engine
from tests.integration.engine_calls import tokens_by_task
from tests.integration.scheduling import Seen, drain, expected, model_of, scheduler_of, step_until, submit
from tests.kv_states import numbers, sliced

pytestmark = needs_mlx

A, B = TaskId("a"), TaskId("b")
CONTEXT = 8192
SLICE = 16
LONG, SHORT = tiny_models.prompt(90), tiny_models.prompt(9)
"""Longer than the windows of the models that have some, and shorter."""


def handed_out(scheduler: Any, prompt: Sequence[int], pieces: list[Piece] | None = None) -> PromptState:
    """The state of a prompt, computed here to the end."""
    pieces = [] if pieces is None else pieces
    scheduler.prefill(A, prompt, CONTEXT, pieces.append)
    assert not drain(scheduler).failed
    return assembled(pieces, len(prompt) - 1)


def submit_with(scheduler: Any, prompt: Sequence[int], state: PromptState) -> None:
    from exo.runner.engines.mlx.sampling import Choice, greedy

    scheduler.submit(B, prompt, Choice(greedy, ()), 16, CONTEXT, state)


def gone_on(scheduler: Any, prompt: Sequence[int], state: PromptState) -> Seen:
    """What comes of a request with a state from elsewhere."""
    submit_with(scheduler, prompt, state)
    return drain(scheduler)


@pytest.mark.parametrize("prompt", [LONG, SHORT, LONG[:2]], ids=["long", "short", "two"])
@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_the_tokens_are_those_of_an_engine_that_computed_the_prompt_itself(
    family: str, prompt: list[int], tiny_model: TinyModels
) -> None:
    folder = tiny_model(family)
    state = handed_out(scheduler_of(folder, SLICE), prompt)
    seen = gone_on(scheduler_of(folder, SLICE), prompt, state)
    assert seen.tokens[B] == expected(folder, prompt)
    assert seen.cached[B] == len(prompt) - 1


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "falcon_h1"])
def test_what_is_held_is_handed_out_without_being_computed(family: str, tiny_model: TinyModels) -> None:
    folder = tiny_model(family)
    scheduler = scheduler_of(folder, SLICE)
    first = handed_out(scheduler, LONG)
    assert scheduler.held(LONG) == len(LONG) - 1
    longer = [*LONG, *SHORT]
    assert scheduler.held(longer) == len(LONG) - 1
    pieces: list[Piece] = []
    state = handed_out(scheduler, longer, pieces)
    assert pieces[0].start == 0
    assert not isinstance(pieces[0].state, AttentionState) or pieces[0].state.tokens == first.tokens
    assert gone_on(scheduler_of(folder, SLICE), longer, state).tokens[B] == expected(folder, longer)
    again = handed_out(scheduler, longer)
    assert gone_on(scheduler_of(folder, SLICE), longer, again).tokens[B] == expected(folder, longer)


def test_each_slice_is_handed_out_layer_by_layer_before_the_next_is_begun(tiny_model: TinyModels) -> None:
    scheduler = scheduler_of(tiny_model("llama"), SLICE)
    pieces: list[Piece] = []
    scheduler.prefill(A, LONG, CONTEXT, pieces.append)
    done, progress = 0, list[PrefillOutput]()
    while scheduler.in_flight:
        before = len(pieces)
        progress = [output for output in scheduler.step() if isinstance(output, PrefillOutput)]
        given = [(piece.layer, piece.start) for piece in pieces[before:]]
        assert given == [(layer, done) for layer in range(tiny_models.LAYERS)]
        done = progress[0].done
    assert progress[-1] == PrefillOutput(A, len(LONG), len(LONG), is_last=True)
    assert len(pieces) > 2 * tiny_models.LAYERS


def test_others_decode_while_a_state_is_handed_out(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, SLICE)
    submit(scheduler, "other", SHORT)
    pieces: list[Piece] = []
    scheduler.prefill(A, LONG, CONTEXT, pieces.append)
    assert drain(scheduler).tokens["other"] == expected(folder, SHORT)
    state = assembled(pieces, len(LONG) - 1)
    assert gone_on(scheduler_of(folder), LONG, state).tokens[B] == expected(folder, LONG)


def test_a_prefill_that_is_cancelled_hands_out_nothing_more_and_keeps_what_it_has(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, SLICE)
    pieces: list[Piece] = []
    scheduler.prefill(A, LONG, CONTEXT, pieces.append)
    step_until(scheduler, Seen(), lambda seen: len(pieces) >= tiny_models.LAYERS)
    scheduler.cancel([A])
    assert scheduler.in_flight == 0
    count = len(pieces)
    assert 0 < scheduler.held(LONG) < len(LONG) - 1
    assert scheduler.step() == []
    assert len(pieces) == count


def with_a_layer_less(state: PromptState) -> PromptState:
    return replace(state, layers=state.layers[1:])


def of_the_whole_prompt(state: PromptState) -> PromptState:
    return replace(state, tokens=len(LONG))


def with_fewer_heads(state: PromptState) -> PromptState:
    return replace(state, layers=(*state.layers[:-1], AttentionState(numbers((89, 4, 16)), numbers((89, 4, 16)))))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (with_a_layer_less, "it has 5 layers, and the model 6"),
        (with_fewer_heads, "layer 5: keys of 4 x 16 numbers a token, and the model has 6 x 16"),
        (of_the_whole_prompt, "it covers 90 tokens, and the prompt has 90"),
    ],
)
def test_a_state_that_does_not_fit_is_left_and_the_prompt_computed(
    changed: Callable[[PromptState], PromptState], reason: str, tiny_model: TinyModels, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_model("llama")
    state = changed(handed_out(scheduler_of(folder), LONG))
    seen = gone_on(scheduler_of(folder), LONG, state)
    assert seen.tokens[B] == expected(folder, LONG)
    assert seen.cached[B] == 0
    assert reason in caplog.text


def test_a_state_of_another_kind_of_model_is_left(tiny_model: TinyModels, caplog: pytest.LogCaptureFixture) -> None:
    for one, other in (("llama", "mamba2"), ("mamba2", "llama"), ("gemma3_text", "llama")):
        state = handed_out(scheduler_of(tiny_model(one)), LONG)
        seen = gone_on(scheduler_of(tiny_model(other)), LONG, state)
        assert seen.tokens[B] == expected(tiny_model(other), LONG)
    assert "layer 0: it came with keys and values, and the model keeps a state space there" in caplog.text
    assert "layer 0: it came as a state space, and the model keeps keys and values there" in caplog.text
    assert "layer 0: it is there from token 73 on, and the model wants all from token 0" in caplog.text


def test_a_state_that_memory_does_not_hold_is_left(tiny_model: TinyModels, caplog: pytest.LogCaptureFixture) -> None:
    folder = tiny_model("llama")
    prompt = tiny_models.prompt(240)
    state = handed_out(scheduler_of(folder), prompt)
    # Just enough for the request; the prefix cache may fill a half of it.
    enough = int(1.2 * 256 * state.nbytes / state.tokens)
    seen = gone_on(scheduler_of(folder, free_bytes=lambda: enough), prompt, state)
    assert f"memory for its {state.nbytes} bytes is not free" in caplog.text
    assert (seen.tokens[B], seen.cached[B]) == (expected(folder, prompt), 0)


def test_a_state_refuses_no_prompt_that_fits_without_it(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    prompt = tiny_models.prompt(240)
    state = handed_out(scheduler_of(folder), prompt)
    enough = int(1.2 * 256 * state.nbytes / state.tokens)
    free = [enough - state.nbytes]  # the state lies in the same memory until it was taken in
    scheduler = scheduler_of(folder, free_bytes=lambda: free[0])
    submit_with(scheduler, prompt, state)
    free[0] = enough
    assert drain(scheduler).tokens[B] == expected(folder, prompt)


def test_what_is_held_of_a_long_prompt_is_handed_out_in_parts(tiny_model: TinyModels) -> None:
    from exo.runner.engines.mlx.handing_out import PART

    scheduler = scheduler_of(tiny_model("llama"))
    prompt = tiny_models.prompt(PART + 100)
    handed_out(scheduler, prompt)
    pieces: list[Piece] = []
    handed_out(scheduler, prompt, pieces)
    assert max(piece.state.tokens for piece in pieces if isinstance(piece.state, AttentionState)) == PART


def test_keys_and_values_of_all_tokens_fit_a_window(tiny_model: TinyModels) -> None:
    """As an engine gives them that has no windows of its own."""
    import mlx.core as mx

    from exo.runner.engines.mlx.arrays import numbers_of
    from exo.runner.engines.mlx.layers import new_layers

    folder = tiny_model("gpt_oss")
    layers: list[Any] = list(new_layers(model_of(folder)))
    model_of(folder)(mx.array([LONG[:-1]]), cache=layers)
    arrays = [(layer.keys[0, :, :89], layer.values[0, :, :89]) for layer in layers]
    whole = [AttentionState(*(numbers_of(array.swapaxes(0, 1)) for array in pair)) for pair in arrays]
    assert {state.tokens for state in whole} == {89}
    seen = gone_on(scheduler_of(folder), LONG, PromptState(89, tuple(whole)))
    assert (seen.tokens[B], seen.cached[B]) == (expected(folder, LONG), 89)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_kept_bit_by_bit(dtype: DType, tiny_model: TinyModels) -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.weights import load_weights

    model = load_weights(tiny_model("llama"), lambda done, total: None)
    model.set_dtype(getattr(mx, dtype))
    ours = scheduler_of(Path(), SLICE, model=model)
    state = handed_out(ours, LONG)
    assert {layer.keys.dtype for layer in state.layers if isinstance(layer, AttentionState)} == {dtype}
    submit(ours, "own", LONG)
    own = drain(ours).tokens["own"]
    assert gone_on(scheduler_of(Path(), SLICE, model=model), LONG, state).tokens[B] == own


def test_numbers_of_another_precision_are_rounded_to_the_models(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    state = handed_out(scheduler_of(folder), LONG)
    rounded = [in_half(layer) for layer in state.layers if isinstance(layer, AttentionState)]
    seen = gone_on(scheduler_of(folder), LONG, replace(state, layers=tuple(rounded)))
    assert seen.cached[B] == len(LONG) - 1


def in_half(layer: AttentionState) -> AttentionState:
    return AttentionState(*(Numbers("float16", one.raw.astype(np.float16)) for one in (layer.keys, layer.values)))


@given(st.sampled_from(DTYPES), st.integers(0, 1 << 30), st.lists(st.integers(0, 4), max_size=4))
def test_any_bits_come_back_from_mlx(dtype: DType, seed: int, shape: list[int]) -> None:
    from exo.runner.engines.mlx.arrays import DTYPES as MLX
    from exo.runner.engines.mlx.arrays import array_of, numbers_of

    given_ = numbers(tuple(shape), dtype, seed)
    back = numbers_of(array_of(given_, MLX[dtype]))
    assert (back.dtype, back.shape, back.raw.tobytes()) == (dtype, given_.shape, given_.raw.tobytes())


def test_what_is_too_large_for_the_models_numbers_is_refused() -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.arrays import array_of

    with pytest.raises(Rejected, match="too large"):
        array_of(Numbers("float32", np.array([1e30], np.float32)), mx.float16)


def test_a_model_whose_caches_only_mlx_has_says_so(tiny_model: TinyModels) -> None:
    scheduler = scheduler_of(tiny_model("llama4"))
    assert "keeps a ChunkedKVCache, which exo does not exchange" in scheduler.exchanges
    with pytest.raises(Rejected, match="ChunkedKVCache") as refusal:
        scheduler.prefill(A, LONG, CONTEXT, list[Piece]().append)
    assert refusal.value.code == "exchange_not_supported"


def test_a_prompt_that_is_too_long_or_empty_is_refused(tiny_model: TinyModels) -> None:
    scheduler = scheduler_of(tiny_model("llama"))
    for prompt, code in (([], "empty_prompt"), (LONG, "context_length_exceeded")):
        with pytest.raises(Rejected) as refusal:
            scheduler.prefill(A, prompt, 50, list[Piece]().append)
        assert refusal.value.code == code
    assert scheduler.in_flight == 0


@pytest.fixture
def engines(tiny_model: TinyModels) -> Iterator[tuple[MlxEngine, MlxEngine]]:
    """Two engines that hold the same model."""
    made = MlxEngine(tiny_models.BLAS_CACHE, ThreadShare()), MlxEngine(tiny_models.BLAS_CACHE, ThreadShare())
    for engine in made:
        engine.load(tiny_models.shard("qwen3_next"), tiny_model("qwen3_next"), lambda done, total: None)
    yield made
    for engine in made:
        engine.close()


async def test_a_state_goes_from_engine_to_engine_over_a_socket(
    engines: tuple[MlxEngine, MlxEngine], tiny_model: TinyModels
) -> None:
    ours, others = engines
    assert (ours.exchanges, ours.held(LONG)) == ("", 0)
    server = PrefillServer(lambda task_id: ours.cancel([task_id]))
    port, key = await server.start(), new_key()
    outgoing = server.expect(A, key)
    fetching = asyncio.create_task(fetch("127.0.0.1", port, key, 20))
    ours.prefill(A, LONG, outgoing)
    while ours.in_flight:
        for output in ours.step():
            if isinstance(output, PrefillOutput) and output.is_last:
                outgoing.done(len(LONG) - 1)
        await asyncio.sleep(0)
    state = await fetching
    await server.close()
    others.submit(B, LONG, SamplingParams(temperature=0, max_tokens=16), state=state)
    outputs = drain_engine(others)
    assert outputs[0] == PrefillOutput(B, len(LONG), len(LONG), cached=len(LONG) - 1)
    assert tokens_by_task(outputs)[B] == expected(tiny_model("qwen3_next"), LONG)
    assert others.held(LONG) == len(LONG) - 1


async def test_a_prefill_whose_peer_left_is_cancelled_in_the_engine(engines: tuple[MlxEngine, MlxEngine]) -> None:
    ours, _ = engines
    left = asyncio.Event()

    def on_left(task_id: TaskId) -> None:
        ours.cancel([task_id])
        left.set()

    server = PrefillServer(on_left)
    port, key = await server.start(), new_key()
    ours.prefill(A, LONG, server.expect(A, key))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(key.encode())
    writer.close()
    async with asyncio.timeout(20):
        await left.wait()
    await server.close()
    assert ours.in_flight == 0


@given(st.data())
def test_a_window_of_all_tokens_or_of_a_longer_window_is_the_last_tokens(data: st.DataObject) -> None:
    from exo.runner.kv.windows import as_attention, as_window

    tokens, size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 14))
    whole = AttentionState(numbers((tokens, 1, 2)), numbers((tokens, 1, 2), seed=1))
    start = data.draw(st.integers(0, tokens - 1))
    part = sliced(whole, start, tokens)
    window = WindowState(part.keys, part.values, start, tokens - start)
    wanted = max(0, tokens - size)
    assert same(as_window(whole, tokens, size), sliced(whole, wanted, tokens))
    if start <= wanted:
        assert same(as_window(window, tokens, size), sliced(whole, wanted, tokens))
    else:
        with pytest.raises(Rejected, match=f"from token {start} on, and a window of {size} begins with token {wanted}"):
            as_window(window, tokens, size)
    if start:
        with pytest.raises(Rejected, match=f"from token {start} on"):
            as_attention(window)
    else:
        assert same(as_attention(window), whole)


def same(one: AttentionState | WindowState, other: AttentionState) -> bool:
    return [array.raw.tobytes() for array in (one.keys, one.values)] == [
        array.raw.tobytes() for array in (other.keys, other.values)
    ]
