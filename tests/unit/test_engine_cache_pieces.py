"""Where blocks of keys and values lie, and memory in pieces."""

from dataclasses import dataclass, field

import pytest

from exo.runner.engines.vllm.cache.pieces import Pieces
from exo.runner.engines.vllm.cache.ranges import around, block_ranges, within


@dataclass
class Placed:
    """As vLLM says where layers are."""

    offset: int
    layers: list[str]
    layer_stride: int
    block_stride: int


@dataclass
class Memory:
    """Pieces of 10 bytes, of which there are `left`."""

    left: int
    piece: int = 10
    there: dict[int, int] = field(default_factory=dict[int, int])

    def map(self, index: int) -> int:
        assert index not in self.there
        if self.left == 0:
            raise MemoryError
        self.left -= 1
        self.there[index] = 1000 + index
        return 1000 + index

    def unmap(self, index: int, handle: int) -> None:
        assert self.there.pop(index) == handle
        self.left += 1


def test_layers_one_after_the_other_have_a_range_each() -> None:
    placed = Placed(offset=7, layers=["a", "b"], layer_stride=1000, block_stride=10)
    assert list(block_ranges([placed], 2, 5)) == [(27, 57), (1027, 1057)]


def test_blocks_of_all_layers_are_one_range() -> None:
    placed = Placed(offset=0, layers=["a", "b"], layer_stride=10, block_stride=20)
    assert list(block_ranges([placed], 2, 5)) == [(40, 100)]


def test_pieces_hold_a_range_or_lie_within_it() -> None:
    assert (around((5, 31), 10), within((5, 31), 10)) == ((0, 4), (1, 3))
    assert (around((10, 30), 10), within((10, 30), 10)) == ((1, 3), (1, 3))
    assert within((11, 19), 10) == (2, 1)


def test_a_piece_is_had_once_and_given_back_once_nothing_else_is_in_it() -> None:
    memory = Memory(left=10)
    pieces = Pieces(memory)
    pieces.commit((0, 25))
    pieces.commit((15, 35))
    assert sorted(memory.there) == [0, 1, 2, 3]
    pieces.release((15, 40))
    assert sorted(memory.there) == [0, 1]
    pieces.release((12, 18))
    assert sorted(memory.there) == [0, 1]
    pieces.clear()
    assert (memory.there, memory.left) == ({}, 10)


def test_where_memory_ends_nothing_is_taken() -> None:
    memory = Memory(left=3)
    pieces = Pieces(memory)
    pieces.commit((0, 10))
    with pytest.raises(MemoryError):
        pieces.commit((0, 40))
    assert (sorted(memory.there), memory.left) == ([0], 2)
    pieces.commit((10, 30))
    assert sorted(memory.there) == [0, 1, 2]
