"""Anthropic's endpoints from a real node with the scripted engine, by Anthropic's own client."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import anthropic
import httpx
import pytest
from anthropic.types import Message, ParsedMessage

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"
WEATHER: dict[str, object] = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
FIELDS = {"type", "text", "thinking", "signature", "id", "name", "input"}
THINK = {"format": "think", "think": {"open": "<think>", "close": "</think>"}}


@pytest.fixture(scope="module")
def sdk(shared_stack: Stack) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=shared_stack.url, api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
async def async_sdk(shared_stack: Stack) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=shared_stack.url, api_key="none", max_retries=0) as one:
        yield one


def body(script: object, **fields: object) -> dict[str, Any]:
    """A request whose only message is a text, or a script as JSON."""
    content = script if isinstance(script, str) else json.dumps(script)
    return {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": content}], **fields}


def ask(sdk: anthropic.Anthropic, script: object, **fields: object) -> Message:
    return cast(Callable[..., Message], sdk.messages.create)(**body(script, **fields))


def blocks(message: Message | ParsedMessage[Any]) -> list[dict[str, Any]]:
    """The content, as plain data."""
    return [block.model_dump(include=FIELDS, exclude_none=True) for block in message.content]


def events(client: httpx.Client, script: object, **fields: object) -> list[tuple[str, Any]]:
    """The names and values of a stream's events."""
    with client.stream("POST", "/v1/messages", json=body(script, **fields, stream=True)) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        frames = response.read().decode().split("\n\n")
    parts = [frame.split("\n") for frame in frames if frame.startswith("event: ")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def test_an_answer_in_one_piece(sdk: anthropic.Anthropic) -> None:
    message = ask(sdk, "one two three")
    assert blocks(message) == [{"type": "text", "text": "one two three"}]
    assert (message.type, message.role, message.model, message.stop_reason) == (
        "message",
        "assistant",
        MODEL,
        "end_turn",
    )
    assert message.id.startswith("msg_")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (len("one two three"), 4)


async def test_an_answer_in_one_piece_without_blocking(async_sdk: anthropic.AsyncAnthropic) -> None:
    create = cast(Callable[..., Awaitable[Message]], async_sdk.messages.create)
    assert blocks(await create(**body("hi"))) == [{"type": "text", "text": "hi"}]


def test_the_streaming_helper_puts_the_same_message_together(sdk: anthropic.Anthropic) -> None:
    with sdk.messages.stream(**body("one two three")) as stream:
        texts = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(texts) == "one two three"
    assert len(texts) > 1
    whole = ask(sdk, "one two three")
    assert blocks(message) == blocks(whole)
    assert (message.stop_reason, message.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert message.usage.input_tokens == whole.usage.input_tokens


async def test_the_streaming_helper_without_blocking(async_sdk: anthropic.AsyncAnthropic) -> None:
    async with async_sdk.messages.stream(**body("one two")) as stream:
        assert "".join([text async for text in stream.text_stream]) == "one two"


def test_a25_the_events_come_in_order(client: httpx.Client) -> None:
    found = events(client, {"tokens": ["a", "b"]})
    assert [name for name, _ in found] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(value["type"] == name for name, value in found)
    assert found[-2][1]["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("system", ["be brief", [{"type": "text", "text": "be brief"}]])
def test_a25_system_is_accepted_in_every_form(sdk: anthropic.Anthropic, system: object) -> None:
    assert ask(sdk, "hi", system=system).stop_reason == "end_turn"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]
    assert ask(sdk, "hi", messages=messages).stop_reason == "end_turn"


@pytest.mark.parametrize("stream", [True, False])
def test_a8_a_stop_sequence_is_named_and_nothing_of_it_is_sent(
    sdk: anthropic.Anthropic, client: httpx.Client, stream: bool
) -> None:
    script = {"tokens": ["X", "Y", "Z", "E", "N", "D", " tail"]}
    if stream:
        found = events(client, script, stop_sequences=["STOP", "END"])
        deltas = [value["delta"] for name, value in found if name == "content_block_delta"]
        assert "".join(delta["text"] for delta in deltas) == "XYZ"
        assert found[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    else:
        message = ask(sdk, script, stop_sequences=["STOP", "END"])
        assert blocks(message) == [{"type": "text", "text": "XYZ"}]
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")


def test_a18_the_limit_ends_the_answer(sdk: anthropic.Anthropic) -> None:
    message = ask(sdk, "a b c d", max_tokens=2)
    assert (blocks(message)[0]["text"], message.stop_reason, message.usage.output_tokens) == ("a b", "max_tokens", 2)


def test_thoughts_are_a_block_of_their_own(sdk: anthropic.Anthropic) -> None:
    script = {"tokens": ["<think>", "hm", "</think>", "yes"], **THINK}
    thinking: dict[str, object] = {"type": "enabled", "budget_tokens": 1024}
    message = ask(sdk, script, max_tokens=2000, thinking=thinking)
    thought, text = blocks(message)
    assert (thought["type"], thought["thinking"], text["text"]) == ("thinking", "hm", "yes")
    assert thought["signature"]
    with sdk.messages.stream(**body(script, max_tokens=2000, thinking=thinking)) as stream:
        names = [event.type for event in stream]
        streamed, _ = blocks(stream.get_final_message())
    assert (streamed["thinking"], streamed["signature"][:4]) == ("hm", thought["signature"][:4])
    assert {"thinking", "signature", "text"} <= set(names)
    history = [
        {"role": "user", "content": "hi"},
        message.to_param(),
        {"role": "user", "content": "and now?"},
    ]
    assert blocks(ask(sdk, "", messages=history))[0]["text"] == "and now?"


def test_omitted_thoughts_stay_away(sdk: anthropic.Anthropic) -> None:
    script = {"tokens": ["<think>", "hm", "</think>", "yes"], **THINK}
    message = ask(sdk, script, thinking={"type": "adaptive", "display": "omitted"})
    thought, text = blocks(message)
    assert (thought["thinking"], text["text"]) == ("", "yes")


@pytest.mark.parametrize("stream", [True, False])
def test_a12_tools_are_called_and_their_results_are_taken(sdk: anthropic.Anthropic, stream: bool) -> None:
    script = {"tokens": ["let me look ", CALL, CALL], "format": "hermes"}
    if stream:
        with sdk.messages.stream(**body(script, tools=[WEATHER])) as events:
            message = events.get_final_message()
    else:
        message = ask(sdk, script, tools=[WEATHER])
    assert message.stop_reason == "tool_use"
    text, *calls = blocks(message)
    assert text["text"].strip() == "let me look"
    assert [(call["name"], call["input"]) for call in calls] == [("get_weather", {"city": "Oslo"})] * 2
    assert len({call["id"] for call in calls}) == 2
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "rain"} for call in calls]
    history = [
        {"role": "user", "content": "What is the weather in Oslo?"},
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [*results, {"type": "text", "text": "it rains"}]},
    ]
    assert blocks(ask(sdk, "", messages=history, tools=[WEATHER]))[0]["text"] == "it rains"


def test_one_call_where_several_are_not_wanted(sdk: anthropic.Anthropic) -> None:
    script = {"tokens": [CALL, CALL], "format": "hermes"}
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert len(ask(sdk, script, tools=[WEATHER], tool_choice=choice).content) == 1


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"extra_body": {"temperature": 2}}, anthropic.BadRequestError, "temperature"),
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        ({"model": "claude-9"}, anthropic.NotFoundError, MODEL),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, anthropic.BadRequestError, "8192"),
        ({"extra_body": {"top_z": 1}}, anthropic.BadRequestError, "top_z"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_errors_are_the_clients_exceptions(
    sdk: anthropic.Anthropic, fields: dict[str, object], error: type[anthropic.APIStatusError], words: str, stream: bool
) -> None:
    with pytest.raises(error) as caught:
        ask(sdk, "hi", stream=stream, **fields)
    assert words in str(caught.value.api_message)
    assert caught.value.request_id


def test_a6_a_failure_before_the_first_token_has_a_status(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.InternalServerError) as caught:
        ask(sdk, {"tokens": ["a"], "fault": {"kind": "error", "after": 0}}, stream=True)
    assert caught.value.error_code == "engine_error"


def test_a6_a_failure_midway_is_an_error_and_no_end_of_the_message(sdk: anthropic.Anthropic) -> None:
    script = {"tokens": ["a", "b", "c"], "pace": 0.02, "fault": {"kind": "error", "after": 2}}
    texts: list[str] = []
    with pytest.raises(anthropic.APIStatusError) as caught, sdk.messages.stream(**body(script)) as stream:
        texts += stream.text_stream
    assert "".join(texts) == "ab"
    assert caught.value.error_code == "engine_error"
    assert caught.value.type == "api_error"


def test_a5_a_client_that_closes_its_stream_frees_the_slot(client: httpx.Client, sdk: anthropic.Anthropic) -> None:
    script = {"tokens": ["x"] * 500, "pace": 0.05}
    with sdk.messages.stream(**body(script, max_tokens=1000)) as stream:
        assert next(stream.text_stream) == "x"
    wait_until(lambda: not client.get("/state/generations").json(), "the generation to end", 2)
    assert client.get("/state/ended").json()[-1]["finish_reason"] == "cancelled"


def test_a_generation_is_cancelled_by_the_id_of_its_message(client: httpx.Client, sdk: anthropic.Anthropic) -> None:
    script = {"tokens": ["x"] * 500, "pace": 0.05}
    with (
        pytest.raises(anthropic.APIStatusError) as caught,
        sdk.messages.stream(**body(script, max_tokens=1000)) as stream,
    ):
        for event in stream:
            if event.type == "message_start":
                client.post(f"/v1/cancel/{event.message.id}")
    assert caught.value.error_code == "cancelled"


def test_a_silent_stream_pings(client: httpx.Client) -> None:
    names = [name for name, _ in events(client, {"tokens": ["a"], "prefill": 3})]
    assert names[:3] == ["message_start", "ping", "content_block_start"]


def test_a20_a_bad_body_is_refused_before_the_model_is_looked_up(client: httpx.Client) -> None:
    for content in (b"{broken", b"", b"\xff\xfe", b'{"model": "nope", "messages": [], "max_tokens": 1}'):
        response = client.post("/v1/messages", content=content)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_a29_a_body_over_the_limit_is_a_413(client: httpx.Client) -> None:
    response = client.post("/v1/messages", content=b" " * (33 * 2**20))
    assert response.status_code == 413
    assert response.json()["error"]["type"] == "request_too_large"
