"""The tools of a chat request, and which of them the model may call."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints
from pydantic_core import to_json

from exo.api.openai.messages import Strict
from exo.domain.messages.requests import Tool, ToolChoice

TOOLS_MOST = 128
"""OpenAI's limit."""
ToolName = Annotated[str, StringConstraints(pattern=r"^[^\s<>\"{}\[\]|]+$", max_length=128)]
"""Any name that no model's way of writing calls would tear apart."""


class Function(Strict):
    """A function that the client has."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class ToolDefinition(Strict):
    """A tool: so far, always a function."""

    type: Literal["function"]
    function: Function

    def to_domain(self) -> Tool:
        """The tool for the engine."""
        parameters = self.function.parameters or {"type": "object", "properties": {}}
        return Tool(
            name=self.function.name,
            description=self.function.description,
            parameters=to_json(parameters).decode(),
            strict=self.function.strict,
        )


class ChosenFunction(Strict):
    """The name of a function."""

    name: ToolName


class ChosenTool(Strict):
    """The one tool that the model must call."""

    type: Literal["function"]
    function: ChosenFunction


ToolChoiceField = Literal["none", "auto", "required"] | ChosenTool
Tools = Annotated[list[ToolDefinition], Field(max_length=TOOLS_MOST)]


def choice_of(value: ToolChoiceField | None) -> ToolChoice:
    """Whether the model may, must not, or must call a tool."""
    if isinstance(value, ChosenTool):
        return "required"
    return value or "auto"
