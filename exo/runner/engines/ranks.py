"""The ranks of one instance: the runner processes that hold a model together and must do the same steps."""

from collections.abc import Sequence
from typing import Protocol


class Ranks(Protocol):
    """This process among those that hold one model. Used from the engine's thread only."""

    @property
    def rank(self) -> int:
        """Which one this is, from 0. Rank 0 speaks for all."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def agree(self, values: Sequence[int]) -> list[int]:
        """The least of each value over all ranks; every rank gets the same.

        All ranks call it, as often, in the same order, with equally many values (each within 63 bits and a sign), or
        they wait for each other. Raises Fatal where a rank is lost.
        """
        ...


class _Solo:
    """One rank, which agrees with itself at no cost."""

    rank = 0
    size = 1

    def agree(self, values: Sequence[int]) -> list[int]:
        return list(values)


SOLO: Ranks = _Solo()
"""The ranks of a model that one process holds whole."""
