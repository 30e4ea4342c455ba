"""A generation's answer put together from its pieces, for whoever asked for it in one."""

from dataclasses import dataclass, field

from exo.api.generation import Item
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import ReasoningPiece, TextPiece, ToolCallPiece

GivenPiece = TextPiece | ReasoningPiece | ToolCallPiece
"""What an answer consists of."""


@dataclass(slots=True)
class Answer:
    """What has come so far."""

    texts: list[str] = field(default_factory=list[str])
    reasonings: list[str] = field(default_factory=list[str])
    calls: list[ToolCallPiece] = field(default_factory=list[ToolCallPiece])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    pieces: list[GivenPiece] = field(default_factory=list[GivenPiece])
    """All of it, in order."""

    def add(self, item: Item) -> None:
        """Take one more piece."""
        if isinstance(item, GivenPiece):
            self.pieces.append(item)
        match item:
            case TextPiece():
                self.texts.append(item.text)
                self.logprobs.extend(item.logprobs)
            case ReasoningPiece():
                self.reasonings.append(item.text)
            case ToolCallPiece():
                self.calls.append(item)
            case _:
                pass

    @property
    def text(self) -> str:
        """What is neither reasoning nor a call."""
        return "".join(self.texts)

    @property
    def reasoning(self) -> str:
        """What the model thought before."""
        return "".join(self.reasonings)
