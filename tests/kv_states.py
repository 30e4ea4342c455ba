"""States of prompts, made up: of any number of layers of every kind, cut anywhere."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from exo.runner.kv.form import (
    DTYPES,
    RAW,
    ArraysState,
    AttentionState,
    DType,
    LayerState,
    Numbers,
    Piece,
    PromptState,
    WindowState,
    arrays_of,
)


def numbers(shape: tuple[int, ...], dtype: DType = "float32", seed: int = 0) -> Numbers:
    """Any bits, as of a dtype: what is moved is never looked at."""
    size = int(np.prod(shape)) * RAW[dtype].itemsize
    bits = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return Numbers(dtype, bits.view(RAW[dtype]).reshape(shape))


@st.composite
def layer_states(draw: st.DrawFn, tokens: int) -> LayerState:
    """A layer after so many tokens."""
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 1 << 30))
    heads, width = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    kind = draw(st.sampled_from(["attention", "window", "arrays"]))
    if kind == "arrays":
        shapes = draw(st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=3))
        made = [numbers(tuple(shape), dtype, seed) for shape in shapes]
        return ArraysState((*made, None) if draw(st.booleans()) else tuple(made))
    if kind == "attention":
        return AttentionState(
            numbers((tokens, heads, width), dtype, seed), numbers((tokens, heads, width + 1), dtype, seed)
        )
    size = draw(st.integers(1, 8))
    kept = min(tokens, size)
    keys, values = numbers((kept, heads, width + 1), dtype, seed), numbers((kept, heads, width), dtype, seed)
    return WindowState(keys, values, tokens - kept, size)


@st.composite
def prompt_states(draw: st.DrawFn) -> PromptState:
    """A state of a few tokens."""
    tokens = draw(st.integers(1, 12))
    return PromptState(tokens, tuple(draw(st.lists(layer_states(tokens), min_size=1, max_size=4))))


@st.composite
def cut(draw: st.DrawFn, state: PromptState) -> list[Piece]:
    """Its pieces: layers with attention in slices of tokens, and the layers in any order beside each other."""
    queues = [_slices(draw, number, layer) for number, layer in enumerate(state.layers)]
    pieces: list[Piece] = []
    while queues:
        queue = draw(st.sampled_from(queues))
        pieces.append(queue.pop(0))
        queues = [left for left in queues if left]
    return pieces


def _slices(draw: st.DrawFn, number: int, layer: LayerState) -> list[Piece]:
    if not isinstance(layer, AttentionState):
        return [Piece(number, layer)]
    inner = draw(st.sets(st.integers(1, layer.tokens - 1))) if layer.tokens > 1 else set[int]()
    edges = [0, *sorted(inner), layer.tokens]
    return [Piece(number, sliced(layer, start, end), start) for start, end in pairwise(edges)]


def sliced(layer: AttentionState, start: int, end: int) -> AttentionState:
    """The tokens [start, end) of a layer."""
    return AttentionState(*(Numbers(one.dtype, one.raw[start:end]) for one in (layer.keys, layer.values)))


def described(state: PromptState) -> object:
    """All that is to be equal of two equal states."""
    return state.tokens, [_described(layer) for layer in state.layers]


def _described(layer: LayerState) -> object:
    arrays = [one and (one.dtype, one.shape, one.raw.tobytes()) for one in arrays_of(layer)]
    window = (layer.start, layer.size) if isinstance(layer, WindowState) else None
    return type(layer), window, arrays
