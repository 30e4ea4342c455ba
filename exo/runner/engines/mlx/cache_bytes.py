"""What a model's state takes in memory, measured on the caches themselves: a window, a state space or compressed
attention (MLA) make it much less than two vectors a head, a layer and a token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx

from exo.runner.engines.mlx.layers import LayerCache, grows, leaves

GROWTH = 256
"""Tokens by which mlx-lm's caches grow at a time."""


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Of one cache."""

    fixed: int
    """However many tokens it has seen."""
    per_token: int
    window: int | None = None
    """The most tokens that it keeps; None: all."""

    def at(self, tokens: int) -> int:
        """Bytes after so many tokens."""
        kept = -(-tokens // GROWTH) * GROWTH
        return self.fixed + self.per_token * (kept if self.window is None else min(kept, self.window))


@dataclass(frozen=True, slots=True)
class CacheBytes:
    """Of one request in all layers of a shard."""

    layers: tuple[LayerBytes, ...]

    def at(self, tokens: int) -> int:
        """Bytes after so many tokens."""
        return sum(layer.at(tokens) for layer in self.layers)

    def tokens(self, bytes_free: int, most: int) -> int:
        """The most tokens, up to `most`, that so many bytes hold."""
        least = 0
        while least < most:
            middle = (least + most + 1) // 2
            if self.at(middle) <= bytes_free:
                least = middle
            else:
                most = middle - 1
        return least

    @property
    def window(self) -> int:
        """The largest window of a layer; 0 where none has one."""
        return max((layer.window or 0 for layer in self.layers), default=0)


def measure(tried: Sequence[LayerCache]) -> CacheBytes:
    """What a model keeps, by its state of one token."""
    return CacheBytes(tuple(_measured(layer) for layer in leaves(tried)))


def _measured(layer: LayerCache) -> LayerBytes:
    """A growing or a rotating cache has room for a number of tokens, which its arrays' last but one axis tells."""
    if layer.empty():
        return LayerBytes(fixed=0, per_token=0)
    window = cast(int | None, getattr(layer, "max_size", None))
    if not grows(layer) and window is None:
        return LayerBytes(fixed=layer.nbytes, per_token=0)
    room = cast(mx.array, cast(Any, layer).keys).shape[-2]
    return LayerBytes(fixed=0, per_token=layer.nbytes // room, window=window)
