"""Calls in JSON: a name, and arguments or parameters. The form of Hermes, Qwen, Llama 3 and Mistral's lists."""

from collections.abc import Mapping
from typing import cast

from exo.runner.output.tools.calls import ParsedCall, named
from exo.runner.output.tools.json_values import Json, read_json

ARGUMENT_KEYS = ("arguments", "parameters")


def json_calls(body: str) -> list[ParsedCall]:
    """The call, or the list of calls, that the text is. Raises ValueError where it is neither."""
    return calls_of(read_json(body))


def calls_of(value: Json) -> list[ParsedCall]:
    """The calls in a JSON value. Raises ValueError where there is none, or something that is none."""
    if isinstance(value, list) and value:
        return [call_of(one) for one in value]
    return [call_of(value)]


def call_of(value: object, *, arguments_needed: bool = False) -> ParsedCall:
    """The call that an object is. Raises ValueError where it is none."""
    fields = _object(value)
    if isinstance(inner := fields.get("function"), Mapping):
        fields = cast(Mapping[str, Json], inner)
    given = [fields[key] for key in ARGUMENT_KEYS if key in fields]
    if arguments_needed and not given:
        raise ValueError("the call has no arguments")
    return call_with(fields.get("name"), given[0] if given else None)


def call_with(name: object, arguments: Json) -> ParsedCall:
    """The call of a name with arguments. Raises ValueError where the name is none, or they are no object."""
    return ParsedCall(named(name), _arguments(arguments))


def _arguments(value: Json) -> Mapping[str, Json]:
    """The arguments, which some models write as a text with JSON in it."""
    if value is None or value == "":
        return {}
    return _object(read_json(value) if isinstance(value, str) else value)


def _object(value: object) -> Mapping[str, Json]:
    if isinstance(value, dict):
        return cast(Mapping[str, Json], value)
    raise ValueError("not a JSON object")
