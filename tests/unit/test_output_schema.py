"""Arguments of calls, fitted to the tool's schema."""

import json
from typing import Any

import pytest

from exo.runner.output.tools.calls import ParsedCall, ToolSchemas
from exo.runner.output.tools.json_values import Json, read_json, read_literal, write_json
from exo.runner.output.tools.schema import Verbatim

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
NESTED = {"type": "object", "properties": {"n": INTEGER}}
LINKED: dict[str, Any] = {
    "$defs": {"Node": {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#/$defs/Node"}}}},
    "properties": {"v": {"$ref": "#/$defs/Node"}},
}


def fitted(value: Json | Verbatim, schema: object) -> Json:
    parameters = LINKED if schema is LINKED else {"properties": {"v": schema}}
    schemas = ToolSchemas({"f": parameters})
    return json.loads(schemas.complete(ParsedCall("f", {"v": value})).arguments)["v"]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", INTEGER, 5),
        ("-5", INTEGER, -5),
        ("5.0", INTEGER, 5),
        ("9007199254740993", INTEGER, 9007199254740993),
        ("5.5", INTEGER, "5.5"),
        ("five", INTEGER, "five"),
        ("", INTEGER, ""),
        ("5 apples", INTEGER, "5 apples"),
        ("true", INTEGER, "true"),
        ("0x10", INTEGER, "0x10"),
        ("0.75", NUMBER, 0.75),
        ("1e3", NUMBER, 1000.0),
        ("NaN", NUMBER, "NaN"),
        ("Infinity", NUMBER, "Infinity"),
        ("1e999", NUMBER, "1e999"),
        ("True", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("1", {"type": "boolean"}, "1"),
        ("null", {"type": ["integer", "null"]}, None),
        ("null", {"type": ["string", "null"]}, "null"),
        ("5", {"type": ["string", "integer"]}, "5"),
        ("5", {"anyOf": [{"type": "null"}, INTEGER]}, 5),
        ("5", {"oneOf": [{"type": "boolean"}, INTEGER]}, 5),
        ("5", {"enum": [1, 5]}, 5),
        ("5", {"const": 5}, 5),
        ("5", {"enum": ["1", "5"]}, "5"),
        ("5", {}, "5"),
        ("5", True, "5"),
        ("5", None, "5"),
        ('{"n": "3"}', NESTED, {"n": 3}),
        ("{'n': '3', 'ok': True}", NESTED, {"n": 3, "ok": True}),
        ("{not json", NESTED, "{not json"),
        ("[1]", NESTED, "[1]"),
        ({"n": "3", "m": "4"}, NESTED, {"n": 3, "m": "4"}),
        (["1", "x"], {"type": "array", "items": INTEGER}, [1, "x"]),
        ({"a": "1"}, {"type": "object", "additionalProperties": INTEGER}, {"a": 1}),
        (5, {"type": "string"}, 5),
        (True, INTEGER, True),
        ({"n": "1", "next": {"n": "2", "next": None}}, LINKED, {"n": 1, "next": {"n": 2, "next": None}}),
        ("5", {"$ref": "#/nowhere"}, "5"),
        ("5", {"$ref": "#/properties/v"}, "5"),
    ],
)
def test_what_fits_after_a_change_of_type_is_changed(value: Json, schema: object, expected: Json) -> None:
    result = fitted(value, schema)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (Verbatim("5"), INTEGER, 5),
        (Verbatim("5"), {"type": "string"}, "5"),
        (Verbatim("5"), {}, "5"),
        (Verbatim("null"), {"type": ["string", "null"]}, None),
        (Verbatim("null"), {"type": "string"}, "null"),
        (Verbatim("5", is_json=True), {}, 5),
        (Verbatim("five", is_json=True), {}, "five"),
        (Verbatim("5", is_json=True), {"type": "string"}, "5"),
        (Verbatim(" 5 "), INTEGER, 5),
        (Verbatim(" x "), {"type": "string"}, " x "),
    ],
)
def test_of_a_value_written_as_text_the_schema_tells_the_type(value: Verbatim, schema: object, expected: Json) -> None:
    assert fitted(value, schema) == expected


def test_a_tool_that_was_not_offered_keeps_its_arguments() -> None:
    assert ToolSchemas().complete(ParsedCall("g", {"v": "5"})).arguments == '{"v": "5"}'


class Counted(dict[str, Any]):
    """A schema that counts how often it is looked at."""

    looks = 0

    def get(self, key: str, default: object = None) -> Any:
        self.looks += key == "type"
        return super().get(key, default)


@pytest.mark.parametrize("references", [1, 200])
def test_a_schema_that_refers_to_itself_is_looked_at_once(references: int) -> None:
    schema = Counted(anyOf=[{"$ref": "#/properties/v"} for _ in range(references)] + [INTEGER])
    assert fitted(Verbatim("5"), schema) == 5
    assert schema.looks == 1


def test_references_are_followed_however_many_there_are() -> None:
    chain: dict[str, Any] = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(5000)}
    parameters = {"$defs": chain | {"d5000": INTEGER}, "properties": {"v": {"$ref": "#/$defs/d0"}}}
    assert ToolSchemas({"f": parameters}).complete(ParsedCall("f", {"v": "5"})).arguments == '{"v": 5}'


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "[" * 500 + "]" * 500, "{", "", "'a'", "1 2"])
def test_what_cannot_be_json_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


def test_numbers_that_json_cannot_hold_stay_text() -> None:
    assert read_json("[NaN, -Infinity, 1e999, " + "9" * 5000 + "]") == ["NaN", "-Infinity", "1e999", "9" * 5000]


@pytest.mark.parametrize("text", ["__import__('os')", "{1, 2}", "b'x'", "(", "1j"])
def test_only_what_json_can_hold_is_read_from_python(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_literal(text)


def test_written_json_is_unicode_as_it_is_and_never_half_a_pair() -> None:
    assert write_json(read_json('{"a": "\\u00e9\\ud83d\\ude00"}')) == '{"a": "é😀"}'
    assert write_json(read_json('{"a": "\\ud83d!"}')) == '{"a": "\ufffd!"}'
