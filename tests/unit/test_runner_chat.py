"""A chat request as chat templates take it."""

import json

import pytest

from exo.domain.messages.requests import ChatMessage, GenerationRequest, Tool, ToolCall
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.chat import chat_messages, json_object, template_arguments
from exo.runner.history import with_known_ids, with_written_arguments

CALLS = (ToolCall(id="a", name="now", arguments='{"zone": "UTC"}'), ToolCall(id="b", name="now", arguments="{}"))
HISTORY = (
    ChatMessage(role="user", content="What time is it?"),
    ChatMessage(role="assistant", content="", reasoning="hm", tool_calls=CALLS),
    ChatMessage(role="tool", content="noon", tool_call_id="a"),
    ChatMessage(role="tool", content="one", tool_call_id="b"),
)


def request(**fields: object) -> GenerationRequest:
    return GenerationRequest.model_validate({"messages": HISTORY, "params": SamplingParams(), **fields})


def test_calls_have_their_arguments_as_objects() -> None:
    _, assistant, result, _ = chat_messages(request())
    function = {"name": "now", "arguments": {"zone": "UTC"}}
    assert assistant["tool_calls"][0] == {"id": "a", "type": "function", "function": function}  # pyright: ignore
    assert assistant["reasoning_content"] == "hm"
    assert result == {"role": "tool", "content": "noon", "tool_call_id": "a"}


def test_templates_that_join_arguments_to_text_have_them_as_text() -> None:
    _, assistant, *_ = with_written_arguments(chat_messages(request()))
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"zone": "UTC"}  # pyright: ignore


def ids(template: str) -> tuple[list[str], list[str]]:
    """Of the calls, and of their answers."""
    _, assistant, *results = with_known_ids(chat_messages(request()), template)
    return [call["id"] for call in assistant["tool_calls"]], [str(one["tool_call_id"]) for one in results]  # pyright: ignore


def test_ids_are_the_clients_unless_a_template_insists_on_its_own() -> None:
    assert ids("") == (["a", "b"], ["a", "b"])
    calls, results = ids("{% if tool_call.id|length != 9 %}{{ raise_exception('...') }}{% endif %}")
    assert calls == results
    assert all(len(one) == 9 and one.isalnum() for one in calls)
    assert len(set(calls)) == 2
    assert ids("<|tool_calls_section_begin|>") == (["functions.now:0", "functions.now:1"],) * 2


def test_tools_are_offered_unless_they_are_forbidden() -> None:
    tool = Tool(name="now", description="The time.", parameters='{"type": "object"}')
    function = {"name": "now", "description": "The time.", "parameters": {"type": "object"}}
    assert template_arguments(request(tools=(tool,))) == {"tools": [{"type": "function", "function": function}]}
    assert template_arguments(request(tools=(tool,), tool_choice="none")) == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"enable_thinking": False}, {"enable_thinking": False, "thinking": False}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False, "thinking": False}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ({"reasoning_effort": "minimal"}, {"reasoning_effort": "low"}),
        (
            {"reasoning_effort": "xhigh", "enable_thinking": True},
            {"reasoning_effort": "high", "enable_thinking": True, "thinking": True},
        ),
    ],
)
def test_switches_of_the_template_are_only_there_when_asked_for(
    fields: dict[str, object], expected: dict[str, object]
) -> None:
    assert template_arguments(request(**fields)) == expected


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000])
def test_what_is_no_object_is_refused_by_name(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        json_object(text, "tools")
    assert caught.value.param == "tools"
