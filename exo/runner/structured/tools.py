"""A grammar of calls, for a request that demands one. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llguidance import LLMatcher

from exo.domain.constraint import Grammar, JsonSchema
from exo.domain.messages.requests import GenerationRequest, Tool
from exo.errors import Rejected
from exo.models.output_format import ToolFormat
from exo.runner.chat import json_object
from exo.runner.structured.grammars import WHITESPACE, grammar_of, invalid, quoted
from exo.runner.structured.said import short

PARAM = "tool_choice"
NAME = "the tool's name"
ARGUMENTS = "the tool's arguments"

Marker = Callable[[str], str]
"""A marker as a grammar writes it: a special token by its number, other text as a literal."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How calls are written: `before`, a call, perhaps `between` and more calls, `after`. All of Lark."""

    call: Callable[[Tool], str]
    before: str = ""
    between: str = ""
    after: str = ""


def grammar_of_calls(request: GenerationRequest, form: ToolFormat | None, marker: Marker) -> Grammar:
    """Of at least one call of the request's tools; of exactly one where there are to be no parallel calls.

    Raises Rejected where the model's form of calls is not one that a grammar here describes: its values are text
    without quotes, of which only the model knows the end, or the model has no form at all; or where the parameters of
    a tool cannot be held, which are named then.
    """
    if form not in _FORMS:
        raise Rejected(
            "this model cannot be made to call a tool, since its way of writing calls cannot be enforced: use 'auto'",
            code="unsupported_parameter",
            param=PARAM,
        )
    written = _FORMS[form](marker)
    called = [tool for tool in request.tools if request.tool_name in (None, tool.name)]
    for tool in called:
        _check(tool, request.tools.index(tool))
    calls = f"call ({written.between} call)*" if request.parallel_tool_calls else "call"
    rules = [f"start: {written.before} {calls} {written.after}"]
    rules += ["call: " + " | ".join(f"call_{number}" for number in range(len(called)))]
    rules += [f"call_{number}: {written.call(tool)}" for number, tool in enumerate(called)]
    return Grammar(text="\n".join(rules), param=PARAM)


def _check(tool: Tool, number: int) -> None:
    """Raises Rejected, naming the tool's parameters, where there is no grammar of their schema."""
    param = f"tools[{number}].function.parameters"
    if json_object(tool.parameters, param).get("type", "object") != "object":
        raise Rejected(f"{param}: a tool's parameters must have the type 'object'", param=param)
    schema = JsonSchema(text=json.dumps(_schema(tool)), strict=tool.strict is True, param=param)
    if wrong := LLMatcher.validate_grammar(grammar_of(schema)):
        raise invalid(schema, short(wrong))


def _schema(tool: Tool) -> dict[str, object]:
    return {**json_object(tool.parameters, "tools"), "type": "object"}


def _arguments(tool: Tool) -> str:
    """A block of its own: what `#` stands for in a schema is the schema's own root."""
    options = {"whitespace_pattern": WHITESPACE, "lenient": tool.strict is not True}
    return "%json " + json.dumps({**_schema(tool), "x-guidance": options})


def _object(tool: Tool, arguments: str) -> str:
    """A call that is an object with a name and arguments, written as chat templates write it."""
    before = f'{{"name": {quoted(tool.name)}, "{arguments}": '
    return f'{quoted(before)} {_arguments(tool)} "}}"'


def _parts(*parts: str) -> Callable[[Tool], str]:
    """A call in Lark, with the tool's name in the place of `NAME` and its arguments in that of `ARGUMENTS`."""

    def call(tool: Tool) -> str:
        put = {NAME: quoted(tool.name), ARGUMENTS: _arguments(tool)}
        return " ".join(put.get(part, part) for part in parts)

    return call


def _hermes(marker: Marker) -> _Form:
    opened, closed = marker("<tool_call>"), marker("</tool_call>")
    return _Form(lambda tool: f'{opened} "\\n" {_object(tool, "arguments")} "\\n" {closed}', between='"\\n"')


def _llama3(marker: Marker) -> _Form:
    return _Form(lambda tool: _object(tool, "parameters"), between='"; "')


def _mistral_list(marker: Marker) -> _Form:
    return _Form(lambda tool: _object(tool, "arguments"), f'{marker("[TOOL_CALLS]")} "["', '", "', '"]"')


def _mistral_v11(marker: Marker) -> _Form:
    return _Form(_parts(marker("[TOOL_CALLS]"), NAME, ARGUMENTS))


def _mistral_args(marker: Marker) -> _Form:
    return _Form(_parts(marker("[TOOL_CALLS]"), NAME, marker("[ARGS]"), ARGUMENTS))


def _kimi(marker: Marker) -> _Form:
    begin, between, end = (marker(f"<|tool_call_{part}|>") for part in ("begin", "argument_begin", "end"))
    call = _parts(begin, '"functions."', NAME, '":"', "/[0-9]{1,3}/", between, ARGUMENTS, end)
    return _Form(call, marker("<|tool_calls_section_begin|>"), "", marker("<|tool_calls_section_end|>"))


def _deepseek_v31(marker: Marker) -> _Form:
    return _deepseek(marker, NAME, marker("<｜tool▁sep｜>"), ARGUMENTS)


def _deepseek_v3(marker: Marker) -> _Form:
    return _deepseek(marker, '"function"', marker("<｜tool▁sep｜>"), NAME, '"\\n```json\\n"', ARGUMENTS, '"\\n```"')


def _deepseek(marker: Marker, *call: str) -> _Form:
    begin, end = marker("<｜tool▁call▁begin｜>"), marker("<｜tool▁call▁end｜>")
    return _Form(_parts(begin, *call, end), marker("<｜tool▁calls▁begin｜>"), "", marker("<｜tool▁calls▁end｜>"))


_FORMS: Mapping[ToolFormat | None, Callable[[Marker], _Form]] = {
    "hermes": _hermes,
    "llama3_json": _llama3,
    "mistral_json": _mistral_list,
    "mistral_v11": _mistral_v11,
    "mistral_args": _mistral_args,
    "kimi_k2": _kimi,
    "deepseek_v31": _deepseek_v31,
    "deepseek_v3": _deepseek_v3,
}
"""Those whose arguments are JSON."""
