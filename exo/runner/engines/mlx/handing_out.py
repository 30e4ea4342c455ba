"""A prompt's state on its way to another engine, from the caches of mlx-lm to the form that belongs to none.

Layers that keep every token give each slice's keys and values. All of them are put in the queue of the device, layer by
layer, before the first is waited for: so a layer is read, and is on its way, while the ones after it are computed.
"""

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx

from exo.runner.engines.mlx.arrays import numbers_of
from exo.runner.engines.mlx.layers import LayerCache, compact_copy, grows, leaves
from exo.runner.kv.form import ArraysState, AttentionState, LayerState, Piece, Sink, WindowState

PART = 2048
"""Tokens that are handed out at a time. A prefix cache may hold many more, and all of them at once would be a copy of
its state, and a piece beyond what the wire takes."""


class HandingOut:
    """Of one prompt. Belongs to the engine's thread."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._given = 0
        """Tokens whose keys and values were handed out."""

    def hand_out(self, layers: Sequence[LayerCache], length: int) -> None:
        """Computes and hands out the keys and values of the next tokens, up to `length`, of the layers that keep all.

        The state may have been described only, and not be computed yet.
        """
        for start in range(self._given, length, PART):
            self._hand_out_part(layers, start, min(start + PART, length))
        self._given = length

    def _hand_out_part(self, layers: Sequence[LayerCache], start: int, end: int) -> None:
        described = [
            (number, _tokens(layer, start, end)) for number, layer in enumerate(leaves(layers)) if grows(layer)
        ]
        for _, arrays in described:
            mx.async_eval(*arrays)
        for number, arrays in described:
            self._sink(Piece(number, AttentionState(*map(numbers_of, arrays)), start))

    def hand_out_rest(self, layers: Sequence[LayerCache], length: int) -> None:
        """Hands out what the other layers keep after all `length` tokens, which is known only then."""
        self.hand_out(layers, length)
        for number, layer in enumerate(leaves(layers)):
            if not grows(layer):
                self._sink(Piece(number, _whole(layer, length)))


def _tokens(layer: LayerCache, start: int, end: int) -> tuple[mx.array, mx.array]:
    """Keys and values [tokens, heads, head_dim] of some tokens, in arrays of their own."""
    cache = cast(Any, layer)
    keys, values = cast(mx.array, cache.keys), cast(mx.array, cache.values)
    return _by_token(keys[..., start:end, :]), _by_token(values[..., start:end, :])


def _by_token(array: mx.array) -> mx.array:
    """From mlx-lm's [1, heads, tokens, head_dim]."""
    return mx.contiguous(array[0].swapaxes(0, 1))


def _whole(layer: LayerCache, length: int) -> LayerState:
    cache = cast(Any, compact_copy(layer))
    if hasattr(cache, "max_size"):
        keys, values = (numbers_of(_by_token(array)) for array in (cache.keys, cache.values))
        return WindowState(keys, values, length - keys.shape[0], cache.max_size)
    return ArraysState(tuple(None if array is None else numbers_of(array[0]) for array in cache.cache))
