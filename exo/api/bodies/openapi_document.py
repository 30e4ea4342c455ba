"""The OpenAPI document, made of what Litestar sees of the endpoints and of what they tell of themselves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import OpenAPI
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from typing_extensions import TypedDict

from exo.api.bodies.openapi import JSON, MARK, Described
from exo.api.http.dialects import ANTHROPIC, OLLAMA, OPENAI, Dialect, dialect_of

Json = dict[str, Any]
Use = tuple[Any, JsonSchemaMode]
"""A type, and whether it is read or written."""
REFERENCE = "#/components/schemas/{model}"


class ErrorFields(TypedDict):
    """What went wrong; `code` is one of those that docs/api.md lists."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(TypedDict):
    """An error, as OpenAI has it."""

    error: ErrorFields


class AnthropicErrorFields(TypedDict):
    """What went wrong."""

    type: str
    message: str
    details: dict[str, str]


class AnthropicError(TypedDict):
    """An error, as Anthropic has it."""

    type: Literal["error"]
    error: AnthropicErrorFields
    request_id: str | None


class OllamaError(TypedDict):
    """An error, as Ollama has it."""

    error: str


_ERRORS: Mapping[Dialect, object] = {OPENAI: OpenAIError, ANTHROPIC: AnthropicError, OLLAMA: OllamaError}


@dataclass
class _Document(OpenAPI):
    def to_schema(self) -> Json:
        return completed(super().to_schema())


@dataclass
class DocumentConfig(OpenAPIConfig):
    """Litestar's configuration. The document is made when somebody asks for it first."""

    def to_openapi_schema(self) -> OpenAPI:
        """What Litestar fills with the endpoints."""
        empty = super().to_openapi_schema()
        return _Document(**{one.name: getattr(empty, one.name) for one in fields(empty)})


def completed(document: Json) -> Json:
    """Litestar's document with the bodies, answers and errors of every endpoint."""
    operations = list(_operations(document))
    uses: list[Use] = [(error, "serialization") for error in _ERRORS.values()]
    for _, _, described in operations:
        uses += _uses(described)
    schemas, definitions = _schemas(uses)
    document.setdefault("components", {}).setdefault("schemas", {}).update(definitions)
    for path, one, described in operations:
        if described.body is not None or described.example is not None:
            one["requestBody"] = _body(described, schemas)
        one["responses"] = _responses(one["responses"], path, described, schemas)
    return document


def _operations(document: Json) -> Iterator[tuple[str, Json, Described]]:
    for path, item in document["paths"].items():
        for one in item.values():
            if isinstance(one, dict):
                yield path, one, one.pop(MARK, Described())


def _uses(described: Described) -> Iterator[Use]:
    if described.body is not None:
        yield described.body, "validation"
    for answer in (described.answer, *described.others.values()):
        if answer is not None:
            yield answer, "serialization"


def _schemas(uses: list[Use]) -> tuple[dict[Use, Json], Json]:
    """The schema of each use, and the definitions that they refer to: all at once, so that no two share a name."""
    unique = list(dict.fromkeys(uses))
    inputs: list[tuple[int, JsonSchemaMode, TypeAdapter[Any]]] = [
        (number, mode, TypeAdapter[Any](of)) for number, (of, mode) in enumerate(unique)
    ]
    found, definitions = TypeAdapter.json_schemas(inputs, ref_template=REFERENCE)
    schemas = {use: dict(found[number, use[1]]) for number, use in enumerate(unique)}
    return schemas, definitions.get("$defs", {})


def _body(described: Described, schemas: Mapping[Use, Json]) -> Json:
    schema = {"type": "object"} if described.body is None else schemas[described.body, "validation"]
    content: Json = {"schema": schema}
    if described.example is not None:
        content["example"] = described.example
    return {"required": True, "content": {JSON: content}}


def _responses(seen: Json, path: str, described: Described, schemas: Mapping[Use, Json]) -> Json:
    """By status. Litestar has that of the route, and an error in a form that is not ours."""
    status, success = next((status, one) for status, one in seen.items() if int(status) < 400)
    success["content"] = {
        media_type: _content(described.answer if media_type == JSON else None, schemas)
        for media_type in described.media_types
    }
    others = {
        str(other): {"description": success["description"], "content": {JSON: _content(answer, schemas)}}
        for other, answer in described.others.items()
    }
    error = {JSON: {"schema": schemas[_ERRORS[dialect_of(path)], "serialization"]}}
    return {
        status: success,
        **others,
        "4XX": {"description": "The request's fault: the code says what, the message what to do", "content": error},
        "5XX": {"description": "The cluster's fault, or a lack in it", "content": error},
    }


def _content(answer: object, schemas: Mapping[Use, Json]) -> Json:
    return {} if answer is None else {"schema": schemas[answer, "serialization"]}
