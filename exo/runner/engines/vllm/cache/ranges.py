"""Where blocks lie in the memory of keys and values."""

from collections.abc import Iterable, Iterator
from typing import Protocol

Range = tuple[int, int]
"""From this byte on, up to that one."""


class Placement(Protocol):
    """Of layers of one shape, as vLLM's `KVCacheTensor` tells it: block b of layer l begins at
    `offset + l * layer_stride + b * block_stride`, in bytes."""

    offset: int
    layers: list[str]
    layer_stride: int
    block_stride: int


def block_ranges(placements: Iterable[Placement], first: int, end: int) -> Iterator[Range]:
    """The bytes of the blocks `first` up to `end`: one range where a block holds all layers, else one a layer."""
    for one in placements:
        layers = 1 if one.block_stride > one.layer_stride else len(one.layers)
        for layer in range(layers):
            begin = one.offset + layer * one.layer_stride
            yield begin + first * one.block_stride, begin + end * one.block_stride


def around(part: Range, piece: int) -> Range:
    """The least whole pieces that hold a range, by their numbers."""
    return part[0] // piece, -(-part[1] // piece)


def within(part: Range, piece: int) -> Range:
    """The whole pieces inside a range, by their numbers; the end is not above the beginning where there is none."""
    return -(-part[0] // piece), part[1] // piece
