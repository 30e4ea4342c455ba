"""The chunks of one generation, in order, each once, however they come."""

from collections.abc import Iterable

from exo.domain.messages.chunks import ChunkGenerated, Piece


class ChunkOrder:
    """Holds back what came too early, and drops what came before."""

    __slots__ = ("_early", "next_index")

    def __init__(self) -> None:
        self.next_index = 0
        self._early: dict[int, Piece] = {}

    @property
    def has_gap(self) -> bool:
        """Whether a chunk is missing in front of one that is there."""
        return bool(self._early)

    def push(self, chunk: ChunkGenerated) -> Iterable[Piece]:
        """The pieces that this chunk makes ready."""
        if chunk.index < self.next_index:
            return ()
        if chunk.index > self.next_index:
            self._early[chunk.index] = chunk.piece
            return ()
        self.next_index += 1
        if not self._early:
            return (chunk.piece,)
        return (chunk.piece, *self._released())

    def _released(self) -> Iterable[Piece]:
        pieces: list[Piece] = []
        while (piece := self._early.pop(self.next_index, None)) is not None:
            pieces.append(piece)
            self.next_index += 1
        return pieces
