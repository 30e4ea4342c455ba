"""What a client asked a model for. Travels beside the commands, and never enters the log."""

from typing import Literal

from exo.domain.base import Frozen
from exo.domain.sampling import SamplingParams

Role = Literal["system", "user", "assistant", "tool"]


class ChatMessage(Frozen):
    """One turn of a conversation, content parts already joined."""

    role: Role
    content: str
    name: str | None = None


class GenerationRequest(Frozen):
    """The payload of one generation: what the engine is to continue, and how."""

    messages: tuple[ChatMessage, ...]
    params: SamplingParams
