"""What a request says of the answer, in the form that `/v1/responses` has: tools, text, reasoning."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import Name, Strict, Unsupported, field_of
from exo.api.bodies.tool_names import TOOLS_MOST, check_different
from exo.api.openai.formats import JsonSchemaText, NamedSchema, ResponseFormat, constraint_of
from exo.api.openai.tools import Function
from exo.domain.constraint import Constraint
from exo.domain.messages.requests import ReasoningEffort


def _a_function(value: object) -> object:
    kind = field_of(value, "type")
    if isinstance(kind, str) and kind != "function":
        raise PydanticCustomError("not_supported", "'{type}' is not supported: tools are functions", {"type": kind})
    return value


class FunctionTool(Function):
    """A function that the client has. OpenAI's built-in tools are none."""

    type: Literal["function"]
    allowed_callers: Unsupported = None
    defer_loading: Unsupported = None
    output_schema: Unsupported = None


class ChosenFunction(Strict):
    """The one function that the model must call."""

    type: Literal["function"]
    name: Name


def _of_different_names(tools: list[FunctionTool]) -> list[FunctionTool]:
    check_different([tool.name for tool in tools])
    return tools


Tools = Annotated[
    list[Annotated[FunctionTool, BeforeValidator(_a_function)]],
    Field(max_length=TOOLS_MOST),
    AfterValidator(_of_different_names),
]
ToolChoice = Annotated[Literal["none", "auto", "required"] | ChosenFunction, BeforeValidator(_a_function)]


class TextFormat(Strict):
    """What the answer must look like: as in chat completions, but flat."""

    type: Literal["text", "json_object", "json_schema"]
    name: Annotated[Name | None, Field(validate_default=True)] = None
    description: str | None = None
    schema_: Annotated[JsonSchemaText | None, Field(alias="schema", validate_default=True)] = None
    strict: bool | None = None

    @field_validator("name", "schema_")
    @classmethod
    def _goes_with_type(cls, value: str | None, info: ValidationInfo) -> str | None:
        wanted = info.data.get("type") == "json_schema"
        if wanted != (value is not None):
            word = "needs" if wanted else "is for"
            raise PydanticCustomError("format_schema", "the type 'json_schema' {word} this", {"word": word})
        return value

    def constraint(self) -> Constraint | None:
        """What it asks for."""
        named = None
        if self.name is not None:
            named = NamedSchema.model_construct(name=self.name, schema_=self.schema_, strict=self.strict)
        return constraint_of(ResponseFormat(type=self.type, json_schema=named), "text.format")


class TextOptions(Strict):
    """`text`."""

    format: TextFormat | None = None
    verbosity: Unsupported = None


def _no_summary(value: object) -> object:
    if value in ("concise", "detailed"):
        raise PydanticCustomError("not_supported", "no summary is made: reasoning is in its items' content")
    return value


class ReasoningOptions(Strict):
    """`reasoning`. A summary that is left to the model is none."""

    effort: ReasoningEffort | None = None
    summary: Annotated[Literal["auto"] | None, BeforeValidator(_no_summary)] = None
    generate_summary: Annotated[Literal["auto"] | None, BeforeValidator(_no_summary)] = None


class StreamOptions(Strict):
    """`stream_options`."""

    include_obfuscation: Literal[False] | None = None
