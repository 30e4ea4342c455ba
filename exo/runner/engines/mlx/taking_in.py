"""A prompt's state from another engine as caches of mlx-lm, where it fits the model."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

from exo.errors import Rejected
from exo.runner.engines.mlx.arrays import array_of, dtype_name
from exo.runner.engines.mlx.layers import LayerCache, leaves
from exo.runner.kv.form import ArraysState, AttentionState, LayerState, Numbers, PromptState, WindowState
from exo.runner.kv.windows import as_attention, as_window

EXCHANGED: tuple[type[object], ...] = (KVCache, RotatingKVCache, ArraysCache)
"""Caches that keep what the form of no engine has. Not those that inherit from them: they keep something else."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the model keeps in one array, without the axis for a batch."""

    shape: tuple[int, ...]
    dtype: mx.Dtype


@dataclass(frozen=True, slots=True)
class _WantedLayer:
    """What the model keeps in one cache: keys and values of tokens, or else the arrays of a state space."""

    keeps_tokens: bool
    arrays: tuple[_Wanted | None, ...]
    window: int | None
    """The most tokens; None: all."""


def why_not(tried: Sequence[LayerCache], ranks: int) -> str:
    """Why states of a model cannot be exchanged; empty where they can. `tried` is its state of one token."""
    if ranks > 1:
        return "a model that is divided over several ranks exchanges no states of prompts"
    reasons = (_why_not_layer(number, layer) for number, layer in enumerate(leaves(tried)))
    return next((reason for reason in reasons if reason), "")


class TakingIn:
    """Of one model. Belongs to the engine's thread."""

    def __init__(self, tried: Sequence[LayerCache], new_layers: Callable[[], list[LayerCache]]) -> None:
        """`tried` is the model's state of one token, which shows what it wants; `new_layers` makes one of none."""
        self._wanted = [_wanted(layer) for layer in leaves(tried)]
        self._new_layers = new_layers

    def layers(self, state: PromptState) -> list[LayerCache]:
        """The state in new caches. Raises Rejected, with both numbers, where it is not one of this model."""
        if len(state.layers) != len(self._wanted):
            raise Rejected(f"it has {len(state.layers)} layers, and the model {len(self._wanted)}")
        layers = self._new_layers()
        for number, (layer, wanted, given) in enumerate(zip(leaves(layers), self._wanted, state.layers, strict=True)):
            try:
                cast(Any, layer).state = _filled(given, wanted, state.tokens)
            except Rejected as refusal:
                raise Rejected(f"layer {number}: {refusal.reason}") from refusal
        return layers


def _why_not_layer(number: int, layer: LayerCache) -> str:
    kind = type(layer)
    if kind not in EXCHANGED or getattr(layer, "keep", 0):
        return f"layer {number} of this model keeps a {kind.__name__}, which exo does not exchange"
    if layer.empty():
        return f"layer {number} of this model keeps nothing of a first token"
    dtypes = [array.dtype for array in _arrays(layer) if array is not None]
    other = next((dtype for dtype in dtypes if dtype_name(dtype) is None), None)
    return f"layer {number} of this model keeps numbers of {other}, which exo does not exchange" if other else ""


def _arrays(layer: LayerCache) -> Sequence[mx.array | None]:
    """What a cache keeps: keys and values, or the arrays of a state space. Nothing of a kind that is not exchanged."""
    cache = cast(Any, layer)
    if isinstance(layer, ArraysCache):
        return cache.cache
    return (cache.keys, cache.values) if isinstance(layer, KVCache | RotatingKVCache) else ()


def _wanted(layer: LayerCache) -> _WantedLayer:
    arrays = tuple(None if array is None else _Wanted(array.shape[1:], array.dtype) for array in _arrays(layer))
    window = cast(int | None, getattr(layer, "max_size", None))
    return _WantedLayer(not isinstance(layer, ArraysCache), arrays, window)


def _filled(given: LayerState, wanted: _WantedLayer, tokens: int) -> object:
    """The state that the cache of a layer is set to."""
    if isinstance(given, ArraysState):
        if wanted.keeps_tokens:
            raise Rejected("it came as a state space, and the model keeps keys and values there")
        return _filled_arrays(given.arrays, wanted.arrays), None, None
    if not wanted.keeps_tokens:
        raise Rejected("it came with keys and values, and the model keeps a state space there")
    if wanted.window is None:
        return *_keys_and_values(as_attention(given), wanted), tokens
    window = as_window(given, tokens, wanted.window)
    return *_keys_and_values(window, wanted), tokens, 0, wanted.window, window.tokens


def _keys_and_values(given: AttentionState | WindowState, wanted: _WantedLayer) -> list[mx.array]:
    together = zip(("keys", "values"), (given.keys, given.values), wanted.arrays, strict=True)
    return [_by_head(name, numbers, array) for name, numbers, array in together if array is not None]


def _by_head(name: str, numbers: Numbers, wanted: _Wanted) -> mx.array:
    """As mlx-lm has it: [1, heads, tokens, head_dim]."""
    heads, _, head_dim = wanted.shape
    if numbers.shape[1:] != (heads, head_dim):
        raise Rejected(f"{name} of {_times(numbers.shape[1:])} numbers a token, and the model has {heads} x {head_dim}")
    return mx.contiguous(array_of(numbers, wanted.dtype).swapaxes(0, 1))[None]


def _filled_arrays(given: Sequence[Numbers | None], wanted: Sequence[_Wanted | None]) -> list[mx.array | None]:
    if len(given) != len(wanted):
        raise Rejected(f"it has {len(given)} arrays, and the model {len(wanted)}")
    return [_filled_array(numbers, array) for numbers, array in zip(given, wanted, strict=True)]


def _filled_array(numbers: Numbers | None, wanted: _Wanted | None) -> mx.array | None:
    if numbers is None and wanted is None:
        return None
    if numbers is None or wanted is None:
        raise Rejected("one of its arrays is set where the model's is not, or the other way round")
    if numbers.shape != wanted.shape:
        raise Rejected(f"an array of {_times(numbers.shape)} numbers, and the model has {_times(wanted.shape)}")
    return array_of(numbers, wanted.dtype)[None]


def _times(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))
