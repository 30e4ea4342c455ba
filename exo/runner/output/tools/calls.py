"""A call as a format's reader found it, and how it becomes one that a client can use."""

from collections.abc import Mapping
from dataclasses import dataclass

from exo.runner.output.segments import Call
from exo.runner.output.tools.json_values import Json, write_json
from exo.runner.output.tools.schema import Schema, Verbatim, fitted


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A name, and arguments as they were written: JSON, or text of which only the schema tells the type."""

    name: str
    arguments: Mapping[str, Json | Verbatim]


class ToolSchemas:
    """The parameters of the tools that a request offers, by name."""

    __slots__ = ("_parameters",)

    def __init__(self, parameters: Mapping[str, Schema] | None = None) -> None:
        self._parameters = parameters or {}

    def complete(self, call: ParsedCall) -> Call:
        """The call with its arguments as a JSON object, fitted to the tool's schema where the tool was offered."""
        schema = self._parameters.get(call.name, {})
        arguments = {key: fitted(value, schema, key) for key, value in call.arguments.items()}
        return Call(call.name, write_json(arguments))


def named(name: object) -> str:
    """A tool's name. Raises ValueError where it is none."""
    if isinstance(name, str) and (stripped := name.strip()):
        return stripped
    raise ValueError("the call has no name")
