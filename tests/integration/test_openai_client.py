"""OpenAI's client library, as people have it, with the scripted engine: what it reads, and what it raises."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"
CONTEXT = 8192
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def call(city: str) -> str:
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


@pytest.fixture
async def sdk(shared_stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
def blocking(shared_stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def says(message: object) -> list[ChatCompletionMessageParam]:
    """A conversation whose only message is a text, or a script as JSON."""
    return [{"role": "user", "content": message if isinstance(message, str) else json.dumps(message)}]


def ask(sdk: openai.OpenAI, message: object, **fields: Any) -> Any:
    return sdk.chat.completions.create(model=MODEL, messages=says(message), **fields)


def test_models_are_listed_and_shown(blocking: openai.OpenAI) -> None:
    (listed,) = blocking.models.list().data
    assert (listed.id, listed.object, listed.owned_by) == (MODEL, "model", "exo")
    assert blocking.models.retrieve(MODEL) == listed
    assert blocking.models.retrieve("scripted") == listed
    with pytest.raises(openai.NotFoundError) as missing:
        blocking.models.retrieve("gpt-9")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")


async def test_models_are_listed_without_blocking(sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == [MODEL]


def test_every_answer_has_its_request_id_in_a_header(blocking: openai.OpenAI) -> None:
    raw = blocking.chat.completions.with_raw_response.create(
        model=MODEL, messages=says("hi"), extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse().choices[0].message.content == "hi"
    assert ask(blocking, "hi")._request_id
    with blocking.chat.completions.with_streaming_response.create(
        model=MODEL, messages=says("hi"), stream=True
    ) as streamed:
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.headers["x-request-id"]


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"temperature": 9}, openai.BadRequestError, "temperature"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model"),
        ({"store": True}, openai.BadRequestError, "store"),
        ({"extra_body": {"top_secret": 1}}, openai.BadRequestError, "top_secret"),
    ],
)
def test_a_refusal_is_the_librarys_own_exception(
    blocking: openai.OpenAI, fields: dict[str, Any], error: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(error) as refusal:
        blocking.chat.completions.create(**{"model": MODEL, "messages": says("hi"), **fields})
    assert refusal.value.param == param
    assert refusal.value.type == "invalid_request_error"
    assert refusal.value.request_id


def test_a6_an_error_midway_is_an_exception(blocking: openai.OpenAI) -> None:
    text = ""
    with pytest.raises(openai.APIError) as failure:
        for chunk in ask(
            blocking, {"tokens": ["a", "b"], "fault": {"kind": "error", "after": 1}, "pace": 0.01}, stream=True
        ):
            text += chunk.choices[0].delta.content or ""
    assert (text, failure.value.code) == ("a", "engine_error")


SLOW = {"tokens": ["x"] * 1000, "pace": 0.02}


def test_a5_a_stream_that_is_closed_ends_its_generation(blocking: openai.OpenAI, client: httpx.Client) -> None:
    stream = ask(blocking, SLOW, stream=True)
    assert any(chunk.choices[0].delta.content == "x" for chunk in stream)
    stream.close()
    wait_until(lambda: not client.get("/state/generations").json(), "the generation to end", 2)


def test_a5_a_client_that_loses_patience_ends_its_generation(blocking: openai.OpenAI, client: httpx.Client) -> None:
    with pytest.raises(openai.APITimeoutError):
        ask(blocking, SLOW, timeout=0.5)
    wait_until(lambda: not client.get("/state/generations").json(), "the generation to end", 2)


async def test_a5_a_task_that_is_cancelled_ends_its_generation(sdk: openai.AsyncOpenAI, client: httpx.Client) -> None:
    stream = await sdk.chat.completions.create(model=MODEL, messages=says(SLOW), stream=True)
    await anext(aiter(stream))
    asking = asyncio.create_task(sdk.chat.completions.create(model=MODEL, messages=says(SLOW)))
    await anext(aiter(stream))
    asking.cancel()
    await asyncio.wait([asking])
    await stream.close()
    wait_until(lambda: not client.get("/state/generations").json(), "the generations to end", 2)


@pytest.mark.parametrize("stream", [True, False])
def test_a12_two_calls_in_one_turn_and_their_results_in_the_next(blocking: openai.OpenAI, stream: bool) -> None:
    first = says({"tokens": ["I look. ", call("Oslo"), "\n", call("Bergen")], "format": "hermes"})
    if stream:
        with blocking.chat.completions.stream(model=MODEL, messages=first, tools=[WEATHER]) as events:  # pyright: ignore
            answer = events.get_final_completion().choices[0]
    else:
        answer = blocking.chat.completions.create(model=MODEL, messages=first, tools=[WEATHER]).choices[0]  # pyright: ignore
    calls: Any = answer.message.tool_calls or []
    assert answer.finish_reason == "tool_calls"
    assert [json.loads(one.function.arguments) for one in calls] == [{"city": "Oslo"}, {"city": "Bergen"}]
    assert len({one.id for one in calls}) == 2
    results = [{"role": "tool", "tool_call_id": one.id, "content": "rain"} for one in calls]
    history = [*first, answer.message.model_dump(exclude_none=True), *results, *says("It rains in both.")]
    second = blocking.chat.completions.create(model=MODEL, messages=history, tools=[WEATHER])  # pyright: ignore
    assert second.choices[0].message.content == "It rains in both."
    assert second.choices[0].finish_reason == "stop"


def test_a12_the_first_delta_of_each_call_names_it(blocking: openai.OpenAI) -> None:
    script = {"tokens": [call("Oslo"), call("Bergen")], "format": "hermes"}
    chunks = list(ask(blocking, script, tools=[WEATHER], stream=True))
    deltas = [one for chunk in chunks for one in chunk.choices[0].delta.tool_calls or []]
    for index in range(2):
        named, *rest = [one for one in deltas if one.index == index]
        assert (named.type, named.function.name) == ("function", "get_weather")
        assert named.id
        assert all(one.id is None and one.function.name is None for one in rest)
        assert json.loads("".join(one.function.arguments for one in (named, *rest)))["city"]


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize(
    "written",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os',
        '<tool_call>\n{"name": get_weather}\n</tool_call>',
    ],
    ids=["unclosed", "malformed"],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a13_a_call_that_cannot_be_read_is_text_with_a_finish_reason(
    blocking: openai.OpenAI, written: str, finish: str, stream: bool
) -> None:
    script = {"tokens": [written[:20], written[20:]], "format": "hermes", "finish": finish}
    answer = ask(blocking, script, tools=[WEATHER], stream=stream)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    said = [choice.delta.content if stream else choice.message.content for choice in choices]
    assert "".join(text or "" for text in said) == written
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == [finish]


def test_a15_a_history_with_calls_of_another_server_is_taken(blocking: openai.OpenAI) -> None:
    foreign = {
        "id": "toolu_01A",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    }
    history = [
        *says("Weather?"),
        {"role": "assistant", "content": None, "tool_calls": [foreign]},
        {"role": "tool", "tool_call_id": "toolu_01A", "content": [{"type": "text", "text": "rain"}]},
        *says("It rains."),
    ]
    answer = blocking.chat.completions.create(model=MODEL, messages=history)  # pyright: ignore
    assert answer.choices[0].message.content == "It rains."


def test_a17_parts_and_the_role_developer_are_taken(blocking: openai.OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ]
    answer = blocking.chat.completions.create(model=MODEL, messages=messages)
    assert answer.choices[0].message.content == "one\ntwo"


def test_a_picture_is_refused_by_its_name(blocking: openai.OpenAI) -> None:
    picture: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(openai.BadRequestError) as refusal:
        blocking.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [picture]}])
    assert refusal.value.param == "messages[0].content[0]"
    assert "text" in refusal.value.message


def test_a18_without_a_limit_the_context_bounds_the_answer(blocking: openai.OpenAI) -> None:
    script = json.dumps({"tokens": ["x"] * 5})
    answer = ask(blocking, script.ljust(CONTEXT - 2))
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("xx", "length")
    assert answer.usage.total_tokens == CONTEXT
