"""What a client asked a model for. Travels beside the commands, and never enters the log."""

from typing import Annotated, Literal

from pydantic import Field

from exo.domain.base import Frozen
from exo.domain.embedding import EmbeddingParams, Gives
from exo.domain.sampling import SamplingParams, TokenNumber

Role = Literal["system", "user", "assistant", "tool"]
ToolChoice = Literal["auto", "none", "required"]
CHARACTERS_PER_TOKEN = 4
"""About."""
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ToolCall(Frozen):
    """A call of a tool, as an earlier answer had it."""

    id: str
    name: str
    arguments: str
    """A JSON object."""


class ChatMessage(Frozen):
    """One turn of a conversation, content parts already joined."""

    role: Role
    content: str
    name: str | None = None
    reasoning: str | None = None
    """What the assistant thought before this answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """Of a tool's answer: the call that it answers."""


class Tool(Frozen):
    """A function that the model may ask the client to call."""

    name: str
    description: str | None = None
    parameters: str = "{}"
    """The JSON schema of its arguments, as JSON."""
    strict: bool | None = None


class GenerationRequest(Frozen):
    """The payload of one generation: what the engine is to continue, and how."""

    type: Literal["GenerationRequest"] = "GenerationRequest"
    messages: tuple[ChatMessage, ...] = ()
    """The conversation that the chat template makes a prompt of."""
    prompt: str | tuple[TokenNumber, ...] | None = None
    """What is continued as it stands, in place of messages: a text, or tokens. The answer is then text alone."""
    echo: bool = False
    """Whether the answer begins with the prompt's text; of a prompt as it stands only."""
    params: SamplingParams
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    """Whether the model may, must not, or must call a tool."""
    tool_name: str | None = None
    """With "required": the tool that must be called; None is any."""
    parallel_tool_calls: bool = True
    """Whether there may be more than one call in an answer."""
    enable_thinking: bool | None = None
    """None: as the model's chat template has it."""
    reasoning_effort: ReasoningEffort | None = None

    @property
    def characters(self) -> int:
        """About how long the prompt is."""
        calls = sum(len(call.arguments) for message in self.messages for call in message.tool_calls)
        tools = sum(len(tool.parameters) + len(tool.description or "") for tool in self.tools)
        raw = len(self.prompt or "") * (1 if isinstance(self.prompt, str) else CHARACTERS_PER_TOKEN)
        return sum(len(message.content) for message in self.messages) + raw + calls + tools

    @property
    def gives(self) -> Gives:
        """What comes of it."""
        return "text"

    def shown(self) -> str:
        """What a model is to continue, as JSON: all that is logged of it where prompts are."""
        return self.model_dump_json(include={"messages" if self.prompt is None else "prompt"})


class EmbeddingRequest(Frozen):
    """The payload of one request for vectors: which texts, and how."""

    type: Literal["EmbeddingRequest"] = "EmbeddingRequest"
    inputs: tuple[str | tuple[TokenNumber, ...], ...]
    """Texts, or tokens."""
    params: EmbeddingParams = EmbeddingParams()

    @property
    def characters(self) -> int:
        """About how long they are, all together."""
        return sum(len(one) * (1 if isinstance(one, str) else CHARACTERS_PER_TOKEN) for one in self.inputs)

    @property
    def gives(self) -> Gives:
        """What comes of it."""
        return "vectors"

    def shown(self) -> str:
        """The texts, as JSON: all that is logged of it where prompts are."""
        return self.model_dump_json(include={"inputs"})


Payload = Annotated[GenerationRequest | EmbeddingRequest, Field(discriminator="type")]
"""What lies at `request.<task_id>`."""
