"""Chunks: pieces of output on their way from rank 0 to the API process that asked."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.ids import TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.domain.prefill import PrefillAttempt
from exo.domain.sampling import FinishReason, Timings, Usage


class TextPiece(Frozen):
    """Some more of the answer."""

    type: Literal["text"] = "text"
    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()
    """Of the tokens whose text this is, where they were asked for. A token is told of with the last of its text."""


class ReasoningPiece(Frozen):
    """Some more of what the model thinks before it answers."""

    type: Literal["reasoning"] = "reasoning"
    text: str


class ToolCallPiece(Frozen):
    """A call of a tool, whole: its arguments are known to be JSON only when they are complete."""

    type: Literal["tool_call"] = "tool_call"
    index: NonNegativeInt
    """Of the call, within the answer."""
    id: str
    name: str
    arguments: str
    """A JSON object."""


class VectorPiece(Frozen):
    """What one text of a request for vectors became."""

    type: Literal["vector"] = "vector"
    index: NonNegativeInt
    """Of the text."""
    vector: str
    """Of length 1: float32 numbers, little-endian, in base64."""


class PrefillPiece(Frozen):
    """So much of the prompt has been computed."""

    type: Literal["prefill"] = "prefill"
    done: NonNegativeInt
    """Tokens."""
    total: NonNegativeInt


class EndPiece(Frozen):
    """The generation is over, and this is its last chunk."""

    type: Literal["end"] = "end"
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    stop_sequence: str | None = None
    """Which of the stop sequences ended it, if one did."""
    code: str = ""
    """Of the error, where the finish reason is one."""
    error: str = ""
    param: str | None = None
    """The parameter at fault, where it is one."""
    retry_after: NonNegativeInt | None = None
    """Of an error that may pass: seconds after which to ask again; None: as the code has it."""
    peak_memory_bytes: NonNegativeInt = 0
    """The most that the engine of rank 0 has held at once since its start, the weights included; 0: not known."""
    prefill: PrefillAttempt | None = None
    """Of another instance that was asked for it."""


Piece = Annotated[
    TextPiece | ReasoningPiece | ToolCallPiece | VectorPiece | PrefillPiece | EndPiece,
    Field(discriminator="type"),
]


class ChunkGenerated(Frozen):
    """One piece of output."""

    type: Literal["ChunkGenerated"] = "ChunkGenerated"
    version: Literal[1] = 1
    task_id: TaskId
    index: NonNegativeInt
    """From 0, without a gap: a reader sees by it what it missed and what it has already."""
    piece: Piece
