"""The blocks that the content of Anthropic's messages is made of: those that a text model can read."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue, Tag
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import LIST_MOST, Strict, by_field, field_of

_UNREADABLE: Mapping[str, str] = {
    "image": "images",
    "document": "documents",
    "search_result": "search results",
    "container_upload": "uploads",
    "server_tool_use": "tools that the server runs",
    "tool_reference": "references to tools",
}


def _readable(block: object) -> object:
    """Raises PydanticCustomError for blocks that Anthropic has, and exo does not."""
    kind = field_of(block, "type")
    if isinstance(kind, str) and kind in _UNREADABLE:
        named = {"type": kind, "what": _UNREADABLE[kind]}
        raise PydanticCustomError("not_supported", "'{type}' blocks are not supported: exo takes no {what}", named)
    return block


def listed(content: object) -> object:
    """A text, as the list of blocks that it stands for."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class CacheControl(Strict):
    """Where the client wants the prompt's beginning kept. All beginnings are kept, for as long as memory allows."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Block(Strict):
    cache_control: CacheControl | None = None


class TextBlock(_Block):
    """A text."""

    type: Literal["text"]
    text: str
    citations: list[object] | None = None
    """What clients leave in that send an answer as history. The text is the same without them."""


TextContent = Annotated[TextBlock, BeforeValidator(_readable)]


def joined(blocks: Iterable[TextBlock]) -> str:
    """Their text, joined by line breaks."""
    return "\n".join(block.text for block in blocks)


class ThinkingBlock(Strict):
    """What an earlier answer thought. The signature is taken for what it is: nothing here was signed."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Strict):
    """Thoughts that only Anthropic could read: a model here is not told of them."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(_Block):
    """A call in an earlier answer, of this server or any other."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    input: dict[str, JsonValue]
    caller: object = None
    """Comes back from clients that send an answer as history."""


class ToolResultBlock(_Block):
    """What the client's tool gave back."""

    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1)]
    content: Annotated[list[TextContent], Field(max_length=LIST_MOST), BeforeValidator(listed)] | None = None
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """For the model, which is told of an error in words: no chat template has another way."""
        text = joined(self.content or ())
        return f"Error: {text}" if self.is_error else text


UserContent = Annotated[
    Annotated[TextBlock, Tag("<text>")] | Annotated[ToolResultBlock, Tag("<tool_result>")],
    by_field("type", "text", "tool_result"),
    BeforeValidator(_readable),
]
AssistantContent = Annotated[
    Annotated[TextBlock, Tag("<text>")]
    | Annotated[ThinkingBlock, Tag("<thinking>")]
    | Annotated[RedactedThinkingBlock, Tag("<redacted_thinking>")]
    | Annotated[ToolUseBlock, Tag("<tool_use>")],
    by_field("type", "text", "thinking", "redacted_thinking", "tool_use"),
    BeforeValidator(_readable),
]
