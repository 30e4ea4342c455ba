"""The parameters that say what an answer must look like: OpenAI's `response_format`, and vLLM's extras."""

from typing import Annotated, Literal, assert_never

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError, to_json

from exo.api.bodies.strict import Name, Strict
from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex

FORMATS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
"""The parameters; at most one of them may ask for something."""


def _schema_text(value: object) -> str:
    """A schema, given as JSON or as a text that holds it, as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | bool):
        return to_json(value).decode()
    raise PydanticCustomError("schema_type", "a JSON schema must be an object, or a text that holds one")


JsonSchemaText = Annotated[str, BeforeValidator(_schema_text)]
CHOICES_MOST = 1_999
"""Texts to choose from: llguidance takes no more alternatives. A schema's `enum` may have more."""
Choices = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=CHOICES_MOST)]


class NamedSchema(Strict):
    """`json_schema` of a response format."""

    name: Name
    description: str | None = None
    schema_: Annotated[JsonSchemaText | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Strict):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Annotated[NamedSchema | None, Field(validate_default=True)] = None

    @field_validator("json_schema")
    @classmethod
    def _goes_with_type(cls, value: NamedSchema | None, info: ValidationInfo) -> NamedSchema | None:
        wanted = info.data.get("type") == "json_schema"
        if wanted != (value is not None):
            word = "needs" if wanted else "is for"
            raise PydanticCustomError("format_schema", "the type 'json_schema' {word} this", {"word": word})
        return value


class StructuredOutputs(Strict):
    """vLLM's `structured_outputs`; exactly one of its fields."""

    json_: Annotated[JsonSchemaText | None, Field(alias="json")] = None
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None

    @model_validator(mode="after")
    def _asks_for_one_thing(self) -> "StructuredOutputs":
        if len([value for value in self.__dict__.values() if value is not None]) != 1:
            raise PydanticCustomError("one_format", "give exactly one of json, json_object, regex, choice, grammar")
        return self


Format = ResponseFormat | StructuredOutputs | str | list[str] | None


def constrains(value: object) -> bool:
    """Whether the value of one of the parameters asks for something."""
    return value is not None and not (isinstance(value, ResponseFormat) and value.type == "text")


def constraint_of(value: Format, param: str) -> Constraint | None:
    """What the value of the parameter `param` asks for."""
    match value:
        case None:
            return None
        case ResponseFormat():
            return _by_response_format(value, param)
        case StructuredOutputs():
            return _structured(value, param)
        case list():
            return Choice(choices=tuple(value), param=param)
        case str():
            return _guided(value, param)
        case _:
            assert_never(value)


def _by_response_format(value: ResponseFormat, param: str) -> Constraint | None:
    if value.type == "text":
        return None
    named = value.json_schema
    if named is None or named.schema_ is None:
        return JsonObject(param=param)
    return JsonSchema(text=named.schema_, strict=named.strict is True, param=param)


def _structured(value: StructuredOutputs, param: str) -> Constraint:
    if value.json_ is not None:
        return JsonSchema(text=value.json_, param=f"{param}.json")
    if value.regex is not None:
        return Regex(pattern=value.regex, param=f"{param}.regex")
    if value.choice is not None:
        return Choice(choices=tuple(value.choice), param=f"{param}.choice")
    if value.grammar is not None:
        return Grammar(text=value.grammar, param=f"{param}.grammar")
    return JsonObject(param=f"{param}.json_object")


def _guided(value: str, param: str) -> Constraint:
    match param:
        case "guided_json":
            return JsonSchema(text=value, param=param)
        case "guided_regex":
            return Regex(pattern=value, param=param)
        case _:
            return Grammar(text=value, param=param)


class FormatFields(Strict):
    """The parameters that say what an answer must look like."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonSchemaText | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None

    @field_validator("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
    @classmethod
    def _one_format(cls, value: object, info: ValidationInfo) -> object:
        before = [name for name in FORMATS if name != info.field_name and constrains(info.data.get(name))]
        if value is not None and before:
            raise PydanticCustomError("two_formats", "'{name}' is given too; one can be met", {"name": before[0]})
        return value

    def constraint(self) -> Constraint | None:
        """What is asked for."""
        asked = (constraint_of(getattr(self, name), name) for name in FORMATS)
        return next((constraint for constraint in asked if constraint is not None), None)
