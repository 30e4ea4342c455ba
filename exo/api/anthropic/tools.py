"""The tools of an Anthropic request, and which of them the model may call."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, StringConstraints, Tag, field_validator
from pydantic_core import PydanticCustomError, to_json

from exo.api.anthropic.blocks import CacheControl
from exo.api.bodies.strict import Strict, Unsupported, by_field
from exo.api.bodies.tool_names import TOOLS_MOST, check_different
from exo.domain.messages.requests import Tool
from exo.domain.messages.requests import ToolChoice as Choice

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
"""Anthropic's rule."""


def _run_by_the_client(kind: object) -> object:
    if kind not in (None, "custom"):
        text = "tools of this type are not supported: only those that the client runs, of type 'custom'"
        raise PydanticCustomError("not_supported", text)
    return kind


class ToolDefinition(Strict):
    """A tool that the client has."""

    type: Annotated[Literal["custom"] | None, BeforeValidator(_run_by_the_client)] = None
    name: ToolName
    description: str | None = None
    input_schema: dict[str, JsonValue]
    strict: bool | None = None
    cache_control: CacheControl | None = None
    allowed_callers: list[Literal["direct"]] | None = None
    defer_loading: Unsupported = None
    eager_input_streaming: Unsupported = None
    input_examples: Unsupported = None

    @field_validator("input_schema")
    @classmethod
    def _of_an_object(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if value.get("type") != "object":
            raise PydanticCustomError("schema_type", "a tool's input must have the type 'object'")
        return value

    def to_domain(self) -> Tool:
        """The tool for the engine."""
        schema = to_json(self.input_schema).decode()
        return Tool(name=self.name, description=self.description, parameters=schema, strict=self.strict)


def _of_different_names(tools: list[ToolDefinition]) -> list[ToolDefinition]:
    check_different([tool.name for tool in tools])
    return tools


Tools = Annotated[list[ToolDefinition], Field(max_length=TOOLS_MOST), AfterValidator(_of_different_names)]


class MayCall(Strict):
    """The model decides."""

    type: Literal["auto"]
    disable_parallel_tool_use: bool | None = None


class MustCall(Strict):
    """The model calls a tool, whichever."""

    type: Literal["any"]
    disable_parallel_tool_use: bool | None = None


class MustCallOne(Strict):
    """The model calls this tool."""

    type: Literal["tool"]
    name: ToolName
    disable_parallel_tool_use: bool | None = None


class MustNotCall(Strict):
    """No tool is offered."""

    type: Literal["none"]


ToolChoice = Annotated[
    Annotated[MayCall, Tag("<auto>")]
    | Annotated[MustCall, Tag("<any>")]
    | Annotated[MustCallOne, Tag("<tool>")]
    | Annotated[MustNotCall, Tag("<none>")],
    by_field("type", "auto", "any", "tool", "none"),
]


def demands_call(choice: ToolChoice | None) -> bool:
    """Whether a text alone would not do."""
    return isinstance(choice, MustCall | MustCallOne)


def choice_of(choice: ToolChoice | None) -> Choice:
    """Whether the model may, must not, or must call a tool."""
    match choice:
        case None | MayCall():
            return "auto"
        case MustNotCall():
            return "none"
        case MustCall() | MustCallOne():
            return "required"


def named_by(choice: ToolChoice | None) -> str | None:
    """The one tool that is to be called."""
    return choice.name if isinstance(choice, MustCallOne) else None


def is_parallel(choice: ToolChoice | None) -> bool:
    """Whether there may be several calls in an answer. A tool that is asked for by its name is called once."""
    match choice:
        case None | MustNotCall():
            return True
        case MustCallOne():
            return False
        case MayCall() | MustCall():
            return choice.disable_parallel_tool_use is not True
