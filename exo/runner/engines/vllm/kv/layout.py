"""Where a block of vLLM's cache holds the keys and values of its tokens, found by trying.

Each attention backend arranges a block in its own way: by token or by head, keys beside values or before them, and on a
CPU keys transposed, or in tiles for its matrix instructions. All have one call that writes keys and values at given
places. Numbers that count up are written by it, and where each is found is the layout: no backend has to be known, and
keys and values of any number of tokens are copied both ways bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Writes keys and values, each [tokens, heads, size of a head], at slots [tokens], in the backend's way."""

_BASE = 256
"""Numbers are written digit by digit: all below this are exact in bfloat16 too."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Of all layers whose caches are alike. A slot is a token's place: block x tokens of a block + offset in it."""

    places: torch.Tensor
    """[2, tokens of a block, heads, size of a head]: of keys and of values, elements from the block's beginning."""
    stride: int
    """Elements from one block to the next."""

    def index(self, slots: torch.Tensor) -> torch.Tensor:
        """Where tokens at `slots` are, [2, tokens, heads, size of a head], for `read` and `write` of every layer."""
        slots = slots.to(self.places.device)
        tokens = self.places.shape[1]
        return self.places[:, slots % tokens] + (slots // tokens * self.stride)[:, None, None]


def read(cache: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """A copy of keys and values, [2, tokens, heads, size of a head]."""
    return _flat(cache)[index]


def write(cache: torch.Tensor, index: torch.Tensor, state: torch.Tensor) -> None:
    """Puts keys and values, as `read` gives them, into the cache."""
    _flat(cache)[index] = state


def found_layout(cache: torch.Tensor, heads: int, size: int, write_tokens: Write) -> BlockLayout | None:
    """The layout of a layer's cache [blocks, heads, tokens of a block, ...], for `size` numbers a head.

    It writes into the first block, which vLLM keeps for itself. None where the block does not hold each number as it
    was given: a cache that is quantized, say.
    """
    tokens = cache.shape[2]
    numbers = torch.arange(2 * tokens * heads * size, device=cache.device).view(2, tokens, heads, size)
    offsets = _offsets(cache)
    if len(offsets) != numbers.numel():
        return None
    found = torch.zeros_like(offsets)
    worth = 1
    while worth < numbers.numel():
        keys, values = (numbers // worth % _BASE).to(cache.dtype)
        write_tokens(keys, values, torch.arange(tokens, device=cache.device))
        found += _flat(cache)[offsets].to(torch.int64) * worth
        worth *= _BASE
    order = found.argsort()
    if not torch.equal(found[order], numbers.flatten()):
        return None
    return BlockLayout(offsets[order].view(numbers.shape), cache.stride(0))


def _offsets(cache: torch.Tensor) -> torch.Tensor:
    """Of all elements of a block, from its beginning."""
    offsets = torch.zeros(1, dtype=torch.int64, device=cache.device)
    for length, stride in zip(cache.shape[1:], cache.stride()[1:], strict=True):
        offsets = (offsets[:, None] + torch.arange(length, device=cache.device) * stride).flatten()
    return offsets


def _flat(cache: torch.Tensor) -> torch.Tensor:
    """All that the cache spans, in the order of memory."""
    last = sum((length - 1) * stride for length, stride in zip(cache.shape, cache.stride(), strict=True))
    return cache.as_strided((last + 1,), (1,), cache.storage_offset())
