"""A chat request as chat templates take it: messages, tools and switches as plain data."""

import json
from collections.abc import Mapping
from typing import cast

from exo.domain.messages.requests import ChatMessage, GenerationRequest, Tool, ToolCall
from exo.errors import Rejected


def chat_messages(request: GenerationRequest) -> list[dict[str, object]]:
    """The conversation. The arguments of earlier calls are objects, which most templates write as JSON themselves."""
    return [_message(message) for message in request.messages]


def template_arguments(request: GenerationRequest) -> dict[str, object]:
    """What a chat template is given besides the conversation; what the request leaves open is not there."""
    arguments: dict[str, object] = {}
    if request.tools and request.tool_choice != "none":
        arguments["tools"] = [_tool(tool) for tool in request.tools]
    thinking = False if request.reasoning_effort == "none" else request.enable_thinking
    if thinking is not None:
        # DeepSeek's templates have the second name.
        arguments |= {"enable_thinking": thinking, "thinking": thinking}
    if request.reasoning_effort not in (None, "none"):
        arguments["reasoning_effort"] = _EFFORTS.get(request.reasoning_effort, request.reasoning_effort)
    return arguments


_EFFORTS: Mapping[str, str] = {"minimal": "low", "xhigh": "high", "max": "high"}
"""Templates know low, medium and high."""


def _message(message: ChatMessage) -> dict[str, object]:
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.name is not None:
        fields["name"] = message.name
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": json_object(call.arguments, "messages")},
    }


def _tool(tool: Tool) -> dict[str, object]:
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = json_object(tool.parameters, "tools")
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def json_object(text: str, param: str) -> dict[str, object]:
    """The object that a part of a request holds as JSON. Raises Rejected, naming the parameter, where it is none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"this is no JSON: {error}", param=param) from error
    if not isinstance(value, dict):
        raise Rejected("this is no JSON object", param=param)
    return cast(dict[str, object], value)
