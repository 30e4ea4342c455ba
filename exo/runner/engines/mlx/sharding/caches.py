"""The caches of layers that another rank holds.

A model looks at its caches for the position of a token and for masks, at whichever index its authors chose. So every
rank keeps one for every layer, and those of absent layers go through the same motions with next to no data.
"""

from collections.abc import Iterator
from typing import Any, Protocol, cast

import mlx.core as mx
from mlx_lm.models import cache as mlx_lm_cache

from exo.errors import Fatal
from exo.runner.engines.mlx import weights
from exo.runner.engines.mlx.layers import parts


class KeyValueCache(Protocol):
    """A cache of keys and values, of one sequence or of a batch."""

    keys: mx.array | None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> object: ...


class StateCache(Protocol):
    """A cache of a state of constant size, as of state-space layers."""

    cache: list[mx.array | None]

    def advance(self, N: int) -> None: ...  # noqa: N803  (mlx-lm's name)


_StateCache = cast(type[Any], mlx_lm_cache.ArraysCache)


def is_cache(value: object) -> bool:
    """Whether an argument of a layer is its cache."""
    return bool(parts(value)) or isinstance(value, _StateCache) or hasattr(value, "update_and_fetch")


def advance(cache: object, batch: int, length: int, dtype: mx.Dtype) -> None:
    """Moves a cache forward by `length` tokens of `batch` sequences, one number a token.

    Raises Fatal for a cache of a kind that cannot be moved without its layer.
    """
    if several := parts(cache):
        for part in several:
            advance(part, batch, length, dtype)
    elif isinstance(cache, _StateCache):
        state = cast(StateCache, cache)
        state.cache[:] = [mx.zeros((batch, 1), dtype) if array is None else array for array in state.cache]
        state.advance(length)
    elif hasattr(cache, "update_and_fetch"):
        nothing = mx.zeros((batch, 1, length, 1), dtype)
        cast(KeyValueCache, cache).update_and_fetch(nothing, nothing)
    else:
        raise Fatal(f"layers with a cache of the kind {type(cache).__name__} cannot be left to another runner")


def tie(cache: object, to: mx.array) -> bool:
    """Makes what a cache holds depend on `to`, so that both are evaluated together. False where it holds nothing."""
    if several := parts(cache):
        return any(tie(part, to) for part in several)
    if isinstance(cache, _StateCache):
        return _tie_state(cast(StateCache, cache), to)
    keys_and_values = cast(KeyValueCache, cache)
    if keys_and_values.keys is None:
        return False
    keys_and_values.keys = cast(mx.array, mx.depends(keys_and_values.keys, to))
    return True


def arrays(cache: object) -> Iterator[mx.array]:
    """What a cache holds."""
    return weights.arrays(cast(Any, cache).state)


def _tie_state(cache: StateCache, to: mx.array) -> bool:
    for index, array in enumerate(cache.cache):
        if array is not None:
            cache.cache[index] = cast(mx.array, mx.depends(array, to))
            return True
    return False
