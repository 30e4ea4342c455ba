"""Arguments fitted to a tool's schema: what fits after a change of type is changed, and the rest stays as it was."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from exo.runner.output.tools.json_values import Json, finite_number, read_json, read_literal

Schema = Mapping[str, object]

_TYPES: Mapping[type[object], str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A value written as text, in a format where all values are. `is_json`: without a schema it is read as JSON."""

    text: str
    is_json: bool = False


def fitted(value: Json | Verbatim, parameters: Schema, key: str) -> Json:
    """The value of one argument, by the schema of a tool's parameters. What does not fit comes back as it was."""
    return _fitted(value, _Types.of(_property(parameters, key), parameters))


@dataclass(frozen=True, slots=True)
class _Types:
    """Which types a schema allows, each with the schema that describes it. Empty: any."""

    branches: tuple[tuple[str, Schema], ...]
    root: Schema

    @classmethod
    def of(cls, schema: object, root: Schema) -> "_Types":
        return cls(tuple(_branches(schema, root)), root)

    def allows(self, kind: str) -> bool:
        return any(allowed == kind for allowed, _ in self.branches)

    def schema(self, kind: str) -> Schema:
        for allowed, schema in self.branches:
            if allowed == kind:
                return schema
        return {}


def _branches(schema: object, root: Schema) -> Iterator[tuple[str, Schema]]:
    """The types of a schema, after those of what it refers to. Each schema once, since it may refer to itself."""
    seen: set[int] = set()
    rest: list[tuple[object, bool]] = [(schema, False)]
    while rest:
        one, members_done = rest.pop()
        fields = _fields(one)
        if members_done:
            yield from ((kind, fields) for kind in _kinds(fields))
        elif id(one) not in seen:
            seen.add(id(one))
            rest.append((one, True))
            rest += [(member, False) for member in reversed(_members(fields, root))]


def _members(schema: Schema, root: Schema) -> list[object]:
    """The schemas that it refers to, and those that it unites."""
    reference = schema.get("$ref")
    referred = [_resolved(reference, root)] if isinstance(reference, str) else []
    return referred + [member for union in ("anyOf", "oneOf", "allOf") for member in _items(schema.get(union))]


def _kinds(schema: Schema) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if kind is not None:
        return [name for name in _items(kind) if isinstance(name, str)]
    listed = _items(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    return list(dict.fromkeys(_TYPES[type(value)] for value in listed))


def _resolved(reference: str, root: Schema) -> object:
    """What `#/a/b` points to within the parameters."""
    found: object = root
    for name in reference.removeprefix("#").split("/")[1:]:
        found = _fields(found).get(name.replace("~1", "/").replace("~0", "~"))
    return found


def _fields(value: object) -> Schema:
    return cast(Schema, value) if isinstance(value, Mapping) else {}


def _property(schema: Schema, key: str) -> object:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return cast(Schema, properties)[key]
    return schema.get("additionalProperties")


def _items(value: object) -> list[object]:
    return cast(list[object], value) if isinstance(value, list) else []


def _fitted(value: Json | Verbatim, types: _Types) -> Json:
    if isinstance(value, Verbatim):
        return _from_verbatim(value, types)
    if isinstance(value, str):
        return value if types.allows("string") else _from_text(value, types)
    if isinstance(value, list) and types.allows("array"):
        item = _Types.of(types.schema("array").get("items"), types.root)
        return [_fitted(element, item) for element in value]
    if isinstance(value, dict) and types.allows("object"):
        schema = types.schema("object")
        return {key: _fitted(one, _Types.of(_property(schema, key), types.root)) for key, one in value.items()}
    return value


def _from_verbatim(value: Verbatim, types: _Types) -> Json:
    if not types.branches:
        return _json_or_text(value.text) if value.is_json else value.text
    if types.allows("null") and _is_null(value.text):
        return None
    return value.text if types.allows("string") else _from_text(value.text, types)


def _json_or_text(text: str) -> Json:
    try:
        return read_json(text)
    except ValueError:
        return text


def _from_text(text: str, types: _Types) -> Json:
    """What the text stands for by the first type that it fits, itself where it fits none."""
    for kind, _ in types.branches:
        try:
            return _converted(text.strip(), kind, types)
        except ValueError:
            continue
    return text


def _converted(text: str, kind: str, types: _Types) -> Json:
    """The text as a value of a type. Raises ValueError where it is none."""
    if kind in ("integer", "number") and (number := finite_number(text)) is not None:
        if kind == "number":
            return number
        if number == int(number):
            return int(number)
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "null" and _is_null(text):
        return None
    if kind in ("object", "array"):
        value = read_literal(text)
        if isinstance(value, dict if kind == "object" else list):
            return _fitted(value, types)
    raise ValueError(f"not a value of type {kind}")


def _is_null(text: str) -> bool:
    return text.strip().lower() == "null"
