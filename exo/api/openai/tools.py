"""The tools of a chat request, and which of them the model may call."""

from typing import Annotated, Literal, cast

from pydantic import AfterValidator, Field, JsonValue, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, to_json

from exo.api.bodies.strict import Name, Strict
from exo.api.bodies.tool_names import TOOLS_MOST, check_demanded, check_different
from exo.domain.messages.requests import Tool, ToolChoice


class Function(Strict):
    """A function that the client has."""

    name: Name
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None

    @field_validator("parameters")
    @classmethod
    def _of_an_object(cls, value: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if value is not None and value.get("type", "object") != "object":
            raise PydanticCustomError("parameters_type", "a tool's parameters must have the type 'object'")
        return value

    def to_domain(self) -> Tool:
        """The tool for the engine."""
        parameters = self.parameters or {"type": "object", "properties": {}}
        return Tool(
            name=self.name,
            description=self.description,
            parameters=to_json(parameters).decode(),
            strict=self.strict,
        )


class ToolDefinition(Strict):
    """A tool: so far, always a function."""

    type: Literal["function"]
    function: Function

    def to_domain(self) -> Tool:
        """The tool for the engine."""
        return self.function.to_domain()


class ChosenFunction(Strict):
    """The name of a function."""

    name: Name


class ChosenTool(Strict):
    """The one tool that the model must call."""

    type: Literal["function"]
    function: ChosenFunction


def _of_different_names(tools: list[ToolDefinition]) -> list[ToolDefinition]:
    check_different([tool.function.name for tool in tools])
    return tools


ToolChoiceField = Literal["none", "auto", "required"] | ChosenTool
Tools = Annotated[list[ToolDefinition], Field(max_length=TOOLS_MOST), AfterValidator(_of_different_names)]


class ToolFields(Strict):
    """What the model may call."""

    tools: Tools | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None

    @field_validator("tool_choice")
    @classmethod
    def _choosable(cls, value: ToolChoiceField | None, info: ValidationInfo) -> ToolChoiceField | None:
        if value in (None, "none", "auto"):
            return value
        offered = [tool.function.name for tool in cast("Tools | None", info.data.get("tools")) or ()]
        check_demanded(value.function.name if isinstance(value, ChosenTool) else None, offered)
        return value

    @property
    def named_tool(self) -> str | None:
        """The one that must be called, where it is named."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, ChosenTool) else None


def choice_of(value: ToolChoiceField | None) -> ToolChoice:
    """Whether the model may, must not, or must call a tool."""
    if isinstance(value, ChosenTool):
        return "required"
    return value or "auto"
