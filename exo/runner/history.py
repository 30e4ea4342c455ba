"""What single chat templates insist on: how earlier calls look."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

Message = Mapping[str, object]

_NINE_CHARACTERS = re.compile(r"length\s*!=\s*9")
"""Mistral's templates refuse the ids of calls that have not nine letters and digits."""
_KIMI = "<|tool_calls_section_begin|>"
"""Kimi's templates write the ids of calls, and the model knows them as `functions.NAME:N`."""


def with_known_ids(messages: Sequence[Message], template: str) -> list[Message]:
    """The messages with ids of calls that the template can do with, wherever the clients have them from."""
    if _NINE_CHARACTERS.search(template):
        return _renamed(messages, lambda call_id, name, number: hashlib.sha256(call_id.encode()).hexdigest()[:9])
    if _KIMI in template:
        return _renamed(messages, lambda call_id, name, number: f"functions.{name}:{number}")
    return list(messages)


def with_written_arguments(messages: Sequence[Message]) -> list[Message]:
    """The messages with the arguments of calls as JSON text, for templates that join them to other text."""
    return [_with_calls(message, _written) for message in messages]


def _renamed(messages: Sequence[Message], rename: Callable[[str, str, int], str]) -> list[Message]:
    names: dict[object, str] = {}

    def known(call: Message) -> Message:
        function = cast(Message, call["function"])
        names[call["id"]] = rename(str(call["id"]), str(function["name"]), len(names))
        return {**call, "id": names[call["id"]]}

    renamed: list[Message] = []
    for message in messages:
        with_calls = _with_calls(message, known)
        if (call_id := message.get("tool_call_id")) is not None:
            with_calls = {**with_calls, "tool_call_id": names.get(call_id) or rename(str(call_id), "tool", len(names))}
        renamed.append(with_calls)
    return renamed


def _with_calls(message: Message, change: Callable[[Message], Message]) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [change(call) for call in cast(list[Message], calls)]}


def _written(call: Message) -> Message:
    function = cast(Message, call["function"])
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}
