"""Ranks of one model as threads of this process."""

import threading
from collections.abc import Sequence

from exo.runner.engines.ranks import Answer

PATIENCE = 60.0
"""Seconds that a rank waits for the others."""


class Together:
    """What all of them are given as their `ranks`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: list[Sequence[int]] = []
        self._least: list[int] = []
        self._barrier = threading.Barrier(size, self._agree, timeout=PATIENCE)

    def agree(self, values: Sequence[int]) -> list[int]:
        """The least of each value over all ranks."""
        self._values.append(values)
        self._barrier.wait()
        return list(self._least)

    def ask(self, values: Sequence[int]) -> Answer:
        """The same; it waits at once, as a rank may."""
        least = self.agree(values)
        return lambda: least

    def _agree(self) -> None:
        self._least = [min(column) for column in zip(*self._values, strict=True)]
        self._values.clear()
