"""Calls in sections between special tokens: Kimi K2's and those of DeepSeek V3 and V3.1."""

import re

from exo.runner.output.tools.calls import ParsedCall, named
from exo.runner.output.tools.hermes import call_with
from exo.runner.output.tools.json_values import read_json

KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"
DEEPSEEK_SEPARATOR = "<｜tool▁sep｜>"
_KIMI_ID = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::\d+)?")
FENCE = "```"


def kimi_calls(body: str) -> list[ParsedCall]:
    """`functions.NAME:N`, a marker, and the arguments in JSON."""
    head, _, arguments = body.partition(KIMI_ARGUMENTS)
    match = _KIMI_ID.fullmatch(named(head))
    if match is None:
        raise ValueError("the call has no name")
    return [call_with(match["name"], read_json(arguments))]


def deepseek_calls(body: str) -> list[ParsedCall]:
    """V3.1's name, separator and JSON, or V3's `function`, separator, name, and JSON in a fence."""
    head, _, tail = body.partition(DEEPSEEK_SEPARATOR)
    if head.strip() == "function" and FENCE in tail:
        name, _, fenced = tail.partition(FENCE)
        arguments, _, after = fenced.removeprefix("json").rpartition(FENCE)
        if after.strip():
            raise ValueError("there is something after the arguments")
        return [call_with(name, read_json(arguments))]
    return [call_with(head, read_json(tail))]
