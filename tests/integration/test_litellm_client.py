"""litellm, as people have it: by its routes for OpenAI's API, for vLLM's, and for Anthropic's."""

import asyncio
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest
from litellm import exceptions
from litellm_calls import WITH_LITELLM, complete, complete_unblocked, embed, put_together
from pydantic import BaseModel

from tests.stack import Stack, wait_until

pytestmark = WITH_LITELLM
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
THINKING = {
    "tokens": ["<think>", "hm", "</think>", "yes"],
    "format": "think",
    "think": {"open": "<think>", "close": "</think>"},
}
SLOW = {"tokens": ["x"] * 1000, "pace": 0.02}
ROUTES = {"openai": "/v1", "hosted_vllm": "/v1", "anthropic": ""}
"""What litellm calls an API, and what it wants to be told of where it is."""
TEXT_ROUTES = ["openai", "hosted_vllm"]

Fields = dict[str, Any]
Routed = Callable[..., Fields]


class City(BaseModel):
    """What an answer is read into."""

    name: str


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def asked(shared_stack: Stack) -> Routed:
    """The arguments of a completion by a route: its message is a text, or a script as JSON."""

    def fields(route: str, message: object, **more: object) -> Fields:
        text = message if isinstance(message, str) else json.dumps(message)
        return {
            "model": f"{route}/exo/scripted",
            "api_base": shared_stack.url + ROUTES[route],
            "api_key": "none",
            "max_retries": 0,
            "messages": [{"role": "user", "content": text}],
            **more,
        }

    return fields


def call(name: str, /, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def joined(chunks: Iterable[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_an_answer_in_one_piece(asked: Routed, route: str) -> None:
    answer = complete(**asked(route, "one two"))
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("one two", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len("one two"), 3)


def test_a_stream_has_the_same_text_one_end_and_the_usage_when_asked(asked: Routed, route: str) -> None:
    fields = asked(route, "one two", stream=True, stream_options={"include_usage": True})
    chunks = list(complete(**fields))
    assert joined(chunks) == "one two"
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == ["stop"]
    usages = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    if route != "hosted_vllm":  # for which litellm counts by itself
        assert (usages[-1].prompt_tokens, usages[-1].completion_tokens) == (len("one two"), 3)


async def test_answers_come_without_blocking(asked: Routed, route: str) -> None:
    whole = await complete_unblocked(**asked(route, "one two"))
    streamed = await complete_unblocked(**asked(route, "one two", stream=True))
    assert whole.choices[0].message.content == "one two"
    assert joined([chunk async for chunk in streamed]) == "one two"


def test_a18_a_limit_is_honoured(asked: Routed, route: str) -> None:
    answer = complete(**asked(route, "a b c d", max_tokens=2))
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("a b", "length")


@pytest.mark.parametrize("stream", [True, False])
def test_a12_tools_are_called_and_their_results_are_taken(asked: Routed, route: str, stream: bool) -> None:
    script = {
        "tokens": ["I look. ", call("get_weather", city="Oslo"), call("get_weather", city="Bergen")],
        "format": "hermes",
    }
    fields = asked(route, script, tools=[WEATHER], stream=stream)
    answer = complete(**fields)
    if stream:
        answer = put_together(list(answer), messages=fields["messages"])
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls
    assert [json.loads(one.function.arguments) for one in calls] == [{"city": "Oslo"}, {"city": "Bergen"}]
    results = [{"role": "tool", "tool_call_id": one.id, "content": "rain"} for one in calls]
    history = [*fields["messages"], choice.message.model_dump(exclude_none=True), *results]
    history.append({"role": "user", "content": "It rains in both."})
    second = complete(**{**asked(route, "", tools=[WEATHER]), "messages": history})
    assert second.choices[0].message.content == "It rains in both."


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_can_be_demanded(asked: Routed, route: str, choice: object) -> None:
    script = {"tokens": [call("get_weather", city="Oslo")], "format": "hermes"}
    answer = complete(**asked(route, script, tools=[WEATHER], tool_choice=choice))
    assert answer.choices[0].message.tool_calls[0].function.name == "get_weather"


@pytest.mark.parametrize("route", TEXT_ROUTES)
def test_a_structured_answer_is_text_of_the_schema(asked: Routed, route: str) -> None:
    answer = complete(**asked(route, {"tokens": ['{"name": ', '"Oslo"}']}, response_format=City))
    assert City.model_validate_json(answer.choices[0].message.content).name == "Oslo"


def test_a_structured_answer_by_anthropics_route_is_the_call_that_litellm_makes_of_it(asked: Routed) -> None:
    script = {"tokens": [call("json_tool_call", name="Oslo")], "format": "hermes"}
    answer = complete(**asked("anthropic", script, response_format=City))
    assert City.model_validate_json(answer.choices[0].message.content).name == "Oslo"


@pytest.mark.parametrize("stream", [True, False])
def test_thoughts_are_apart_from_the_answer(asked: Routed, route: str, stream: bool) -> None:
    answer = complete(**asked(route, THINKING, stream=stream))
    if stream:
        answer = put_together(list(answer))
    message = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("yes", "hm")


@pytest.mark.parametrize(
    ("message", "fields", "error", "words"),
    [
        ("hi", {"model": "gpt-9"}, exceptions.NotFoundError, "there is no model"),
        ("x" * 9000, {"max_tokens": 5}, exceptions.ContextWindowExceededError, "8192"),
        ("hi", {"top_p": 2}, exceptions.BadRequestError, "top_p"),
        ("hi", {"extra_body": {"top_z": 2}}, exceptions.BadRequestError, "top_z|extra_body"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_is_litellms_own_exception(
    asked: Routed, route: str, message: str, fields: Fields, error: type[Exception], words: str, stream: bool
) -> None:
    named = {"model": f"{route}/{fields['model']}"} if "model" in fields else {}
    with pytest.raises(error, match=words):
        complete(**{**asked(route, message, stream=stream), **fields, **named})


def test_a6_a_failure_midway_is_an_exception(asked: Routed, route: str) -> None:
    script = {"tokens": ["a", "b", "c"], "pace": 0.02, "fault": {"kind": "error", "after": 2}}
    text = ""
    with pytest.raises(exceptions.MidStreamFallbackError, match="the script fails after 2 tokens"):
        for chunk in complete(**asked(route, script, stream=True)):
            text += joined([chunk])
    assert text == "ab"


async def test_a5_a_stream_that_is_closed_ends_its_generation(asked: Routed, route: str, client: httpx.Client) -> None:
    stream = await complete_unblocked(**asked(route, SLOW, stream=True))
    assert joined([await anext(stream), await anext(stream), await anext(stream)])
    await stream.aclose()
    await asyncio.to_thread(wait_until, lambda: not client.get("/state/generations").json(), "the end", 2)


@pytest.mark.parametrize("route", TEXT_ROUTES)
def test_texts_become_vectors_in_their_order(asked: Routed, route: str) -> None:
    fields = {name: value for name, value in asked(route, "").items() if name != "messages"}
    answer = embed(**fields, input=["The sea was calm.", "Birds came.", "The sea was calm."])
    first, second, third = [one["embedding"] for one in answer.data]
    assert math.isclose(math.hypot(*first), 1, rel_tol=1e-3)
    assert first == third != second
    assert answer.usage.prompt_tokens > 0
