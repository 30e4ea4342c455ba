"""Calls in tags: Qwen3-Coder's functions, GLM's keys and values, MiniMax's and DeepSeek's invokes."""

import re
from collections.abc import Callable, Iterator

from exo.runner.output.tools.calls import ParsedCall, named
from exo.runner.output.tools.hermes import json_calls
from exo.runner.output.tools.schema import Verbatim

_FUNCTION = re.compile(r"\s*<function=(?P<name>[^>\n]*)>(?P<body>.*)</function>\s*", re.DOTALL)
_QWEN_PARAMETER = re.compile(
    r"\s*<parameter=(?P<key>[^>\n]*)>(?P<value>.*?)(?:(?P<close></parameter>)|(?=\n<parameter=)|\Z)", re.DOTALL
)
_GLM_ARGUMENT = re.compile(
    r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)(?:(?P<close></arg_value>)|(?=<arg_key>)|\Z)",
    re.DOTALL,
)
_INVOKE_NAME = re.compile(r'\s*"?(?P<name>[^">]*)"?\s*>')
_MINIMAX_PARAMETER = re.compile(
    r'\s*<parameter name="?(?P<key>[^">]*)"?\s*>(?P<value>.*?)'
    r"(?:(?P<close></parameter>)|(?=\n<parameter name=)|\Z)",
    re.DOTALL,
)
_DSML_PARAMETER = re.compile(
    r'\s*<｜DSML｜parameter name="(?P<key>[^"]*)"(?:\s+string="(?P<string>true|false)")?\s*>(?P<value>.*?)'
    r"(?:(?P<close></｜DSML｜parameter>)|(?=\n<｜DSML｜parameter name=)|\Z)",
    re.DOTALL,
)


def opened(start: str, end: str) -> Callable[[str], bool]:
    """Whether a text ends within the value that a tag beginning with `start` opened, and `end` would close."""
    return lambda text: text.rfind(start) > text.rfind(end)


def function_calls(body: str) -> list[ParsedCall]:
    """Qwen3-Coder's `<function=NAME>`, with one line break off each end of a value. Hermes' JSON is taken too."""
    if body.lstrip().startswith(("{", "[")):
        return json_calls(body)
    function = _full(_FUNCTION, body)
    arguments = {
        named(found["key"]): Verbatim(_value(found).removeprefix("\n").removesuffix("\n"))
        for found in _all(_QWEN_PARAMETER, function["body"])
    }
    return [ParsedCall(named(function["name"]), arguments)]


def glm_calls(body: str) -> list[ParsedCall]:
    """GLM's name, keys and values. Hermes' JSON, which GLM writes at times, is taken too."""
    if body.lstrip().startswith("{"):
        return json_calls(body)
    name, tag, rest = body.partition("<arg_key>")
    arguments = {named(found["key"]): Verbatim(_value(found)) for found in _all(_GLM_ARGUMENT, tag + rest)}
    return [ParsedCall(_plain_name(name), arguments)]


def invoke_calls(body: str) -> list[ParsedCall]:
    """What follows MiniMax's `<invoke name=`."""
    name, parameters = _invoked(body)
    arguments = {named(found["key"]): Verbatim(_value(found)) for found in _all(_MINIMAX_PARAMETER, parameters)}
    return [ParsedCall(name, arguments)]


def dsml_calls(body: str) -> list[ParsedCall]:
    """What follows DeepSeek's `<｜DSML｜invoke name=`. A value that is marked as no string is JSON."""
    name, parameters = _invoked(body)
    arguments = {
        named(found["key"]): Verbatim(_value(found), is_json=True) if found["string"] == "false" else _value(found)
        for found in _all(_DSML_PARAMETER, parameters)
    }
    return [ParsedCall(name, arguments)]


def _value(argument: re.Match[str]) -> str:
    """The value as it was written; white space after one that was not closed is no part of it."""
    return argument["value"] if argument["close"] else argument["value"].rstrip()


def _plain_name(text: str) -> str:
    """A name that stands there without a tag. Raises ValueError where it cannot be one."""
    name = named(text)
    if re.search(r"[\s<>]", name):
        raise ValueError("this is no name")
    return name


def _invoked(body: str) -> tuple[str, str]:
    match = _INVOKE_NAME.match(body)
    if match is None:
        raise ValueError("the call has no name")
    return named(match["name"]), body[match.end() :]


def _full(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("not a call of this form")
    return match


def _all(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """One match after the other, until only white space is left. Raises ValueError where something else is."""
    at = 0
    while text[at:].strip():
        match = pattern.match(text, at)
        if match is None:
            raise ValueError("there is something between the arguments")
        yield match
        at = match.end()
