"""Calls in tags: Qwen3-Coder's functions, GLM's keys and values, MiniMax's and DeepSeek's invokes."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from exo.runner.output.tools.calls import ParsedCall, named
from exo.runner.output.tools.hermes import json_calls
from exo.runner.output.tools.schema import Verbatim

_FUNCTION = re.compile(r"\s*<function=(?P<name>[^>\n]*)>")
_FUNCTION_END = re.compile(r"\s*</function>")
_INVOKE_NAME = re.compile(r'\s*"?(?P<name>[^">]*)"?\s*>')
_WHITESPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Argument:
    """A key, its value as it was written, and what else its tag said."""

    key: str
    value: str
    tag: re.Match[str]


@dataclass(frozen=True, slots=True)
class ArgumentTags:
    """How a format writes arguments. `open` matches all before a value, and names the `key`.

    A value ends at `close`. Where the model left that out it ends, without the white space after it, at what begins
    the next argument or ends the call.
    """

    open: re.Pattern[str]
    close: str
    next: str
    end: str | None = None

    def read(self, text: str, at: int) -> tuple[list[Argument], int]:
        """The arguments that stand at `at`, and where they end. Raises ValueError for one without a name."""
        arguments: list[Argument] = []
        while (tag := self.open.match(text, at)) is not None:
            value, at = self._value(text, tag.end())
            arguments.append(Argument(named(tag["key"]), value, tag))
        return arguments, at

    def _value(self, text: str, start: int) -> tuple[str, int]:
        close = text.find(self.close, start)
        following = text.find(self.next, start)
        if close >= 0 and not 0 <= following < close:
            return text[start:close], close + len(self.close)
        ends = [following, text.find(self.end, start) if self.end else -1, len(text)]
        end = min(place for place in ends if place >= 0)
        return text[start:end].rstrip(), end


_QWEN = ArgumentTags(
    open=re.compile(r"\s*<parameter=(?P<key>[^>\n]*)>"), close="</parameter>", next="\n<parameter=", end="</function>"
)
_GLM = ArgumentTags(
    open=re.compile(r"\s*<arg_key>(?P<key>[^<]*)</arg_key>\s*<arg_value>"),
    close="</arg_value>",
    next="<arg_key>",
    end="</tool_call>",
)
_MINIMAX = ArgumentTags(
    open=re.compile(r'\s*<parameter name="?(?P<key>[^">]*)"?\s*>'), close="</parameter>", next="\n<parameter name="
)
_DSML = ArgumentTags(
    open=re.compile(r'\s*<｜DSML｜parameter name="(?P<key>[^"]*)"(?:\s+string="(?P<string>true|false)")?\s*>'),
    close="</｜DSML｜parameter>",
    next="\n<｜DSML｜parameter name=",
)


def opened(start: str, end: str) -> Callable[[str], bool]:
    """Whether a text ends within the value that a tag beginning with `start` opened, and `end` would close."""
    return lambda text: text.rfind(start) > text.rfind(end)


def function_calls(body: str) -> list[ParsedCall]:
    """Qwen3-Coder's `<function=NAME>`, with one line break off each end of a value. Hermes' JSON is taken too."""
    if body.lstrip().startswith(("{", "[")):
        return json_calls(body)
    calls: list[ParsedCall] = []
    at = 0
    while (function := _FUNCTION.match(body, at)) is not None:
        arguments, at = _QWEN.read(body, function.end())
        values = {one.key: Verbatim(one.value.removeprefix("\n").removesuffix("\n")) for one in arguments}
        calls.append(ParsedCall(named(function["name"]), values))
        end = _FUNCTION_END.match(body, at)
        at = end.end() if end else at
    _check_end(body, at)
    return calls


def glm_calls(body: str) -> list[ParsedCall]:
    """GLM's name, keys and values. Hermes' JSON, which GLM writes at times, is taken too."""
    if body.lstrip().startswith("{"):
        return json_calls(body)
    name, tag, rest = body.partition("<arg_key>")
    arguments = _all(_GLM, tag + rest, 0)
    return [ParsedCall(_plain_name(name), {one.key: Verbatim(one.value) for one in arguments})]


def invoke_calls(body: str) -> list[ParsedCall]:
    """What follows MiniMax's `<invoke name=`."""
    name, at = _invoked(body)
    return [ParsedCall(name, {one.key: Verbatim(one.value) for one in _all(_MINIMAX, body, at)})]


def dsml_calls(body: str) -> list[ParsedCall]:
    """What follows DeepSeek's `<｜DSML｜invoke name=`. A value that is marked as no string is JSON."""
    name, at = _invoked(body)
    return [ParsedCall(name, {one.key: _dsml_value(one) for one in _all(_DSML, body, at)})]


def _dsml_value(argument: Argument) -> str | Verbatim:
    return Verbatim(argument.value, is_json=True) if argument.tag["string"] == "false" else argument.value


def _plain_name(text: str) -> str:
    """A name that stands there without a tag. Raises ValueError where it cannot be one."""
    name = named(text)
    if re.search(r"[\s<>]", name):
        raise ValueError("this is no name")
    return name


def _invoked(body: str) -> tuple[str, int]:
    match = _INVOKE_NAME.match(body)
    if match is None:
        raise ValueError("the call has no name")
    return named(match["name"]), match.end()


def _all(tags: ArgumentTags, text: str, at: int) -> list[Argument]:
    """The arguments, which go to the text's end. Raises ValueError where something else comes."""
    arguments, at = tags.read(text, at)
    _check_end(text, at)
    return arguments


def _check_end(text: str, at: int) -> None:
    if _WHITESPACE.fullmatch(text, at) is None:
        raise ValueError("there is something else beside the arguments")
