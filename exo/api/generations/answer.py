"""A generation's answer put together from its pieces, for whoever asked for it in one."""

from dataclasses import dataclass, field

from exo.api.generations.generation import Item
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import ReasoningPiece, TextPiece, ToolCallPiece

GivenPiece = TextPiece | ReasoningPiece | ToolCallPiece
"""What an answer consists of."""


@dataclass(slots=True)
class Answer:
    """What has come so far."""

    pieces: list[GivenPiece] = field(default_factory=list[GivenPiece])
    """In their order."""

    def add(self, item: Item) -> None:
        """Take one more piece."""
        if isinstance(item, GivenPiece):
            self.pieces.append(item)

    @property
    def text(self) -> str:
        """What is neither reasoning nor a call."""
        return "".join([piece.text for piece in self.pieces if isinstance(piece, TextPiece)])

    @property
    def reasoning(self) -> str:
        """What the model thought before."""
        return "".join([piece.text for piece in self.pieces if isinstance(piece, ReasoningPiece)])

    @property
    def calls(self) -> list[ToolCallPiece]:
        """What the client is asked to call."""
        return [piece for piece in self.pieces if isinstance(piece, ToolCallPiece)]

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """Of the text's tokens, where they were asked for."""
        return [one for piece in self.pieces if isinstance(piece, TextPiece) for one in piece.logprobs]
