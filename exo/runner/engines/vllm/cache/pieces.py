"""Memory that is had in pieces of one size only, at addresses that are reserved beforehand."""

from typing import Protocol

from exo.runner.engines.vllm.cache.ranges import Range, around, within


class Mapper(Protocol):
    """Puts memory behind addresses."""

    piece: int
    """Bytes of a piece."""

    def map(self, index: int) -> int:
        """A new piece at its place, filled with zeros; the answer is needed to give it back. Raises MemoryError."""
        ...

    def unmap(self, index: int, handle: int) -> None:
        """Gives a piece back."""
        ...


class Pieces:
    """Those that are there."""

    def __init__(self, mapper: Mapper) -> None:
        self._mapper = mapper
        self._handles: dict[int, int] = {}

    def commit(self, part: Range) -> None:
        """Every piece of a range is there. Raises MemoryError, and then as many as before are there."""
        first, end = around(part, self._mapper.piece)
        new: list[int] = []
        try:
            for index in range(first, end):
                if index not in self._handles:
                    self._handles[index] = self._mapper.map(index)
                    new.append(index)
        except MemoryError:
            for index in new:
                self._drop(index)
            raise

    def release(self, part: Range) -> None:
        """Gives back the pieces that lie within a range."""
        first, end = within(part, self._mapper.piece)
        for index in [index for index in self._handles if first <= index < end]:
            self._drop(index)

    def clear(self) -> None:
        """Gives back all."""
        for index in list(self._handles):
            self._drop(index)

    def _drop(self, index: int) -> None:
        self._mapper.unmap(index, self._handles.pop(index))
