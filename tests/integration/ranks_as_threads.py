"""Ranks of one model as threads of this process, for a scheduler whose model each holds whole."""

import threading
from collections.abc import Sequence


class Together:
    """What all of them are given as their `ranks`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: list[Sequence[int]] = []
        self._least: list[int] = []
        self._barrier = threading.Barrier(size, self._agree, timeout=60)

    def agree(self, values: Sequence[int]) -> list[int]:
        self._values.append(values)
        self._barrier.wait()
        return list(self._least)

    def _agree(self) -> None:
        self._least = [min(column) for column in zip(*self._values, strict=True)]
        self._values.clear()
