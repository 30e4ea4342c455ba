"""`/v1/responses` with OpenAI's own client, against the scripted engine."""

import json
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"
WORDS = [f"w{number} " for number in range(40)]
SLOW = json.dumps({"tokens": WORDS, "pace": 0.05})
ENDLESS = json.dumps({"tokens": ["x"] * 1000, "pace": 0.1})


@pytest.fixture
def sdk(shared_stack: Stack) -> Iterator[openai.OpenAI]:
    with client_of(shared_stack) as one:
        yield one


def client_of(stack: Stack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0)


def settled(sdk: openai.OpenAI, response_id: str) -> Response:
    """The response once it is over."""
    wait_until(lambda: sdk.responses.retrieve(response_id).status not in ("queued", "in_progress"), "its end")
    return sdk.responses.retrieve(response_id)


def text_of(events: list[ResponseStreamEvent]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_an_answer_in_one_piece_is_fetched_again_as_it_was(sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input="one two", metadata={"a": "b"}, instructions="x")
    assert created.output_text == "one two"
    assert created.status == "completed"
    assert created.usage is not None
    assert created.usage.output_tokens == len(["one", " two", "the end"])
    assert sdk.responses.retrieve(created.id).to_dict() == created.to_dict()


def test_a24_the_events_of_a_stream_have_growing_numbers(sdk: openai.OpenAI) -> None:
    events = list(sdk.responses.create(model=MODEL, input="one two three", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert text_of(events) == "one two three"


def test_the_clients_own_reader_of_streams_takes_it(sdk: openai.OpenAI) -> None:
    script = json.dumps(
        {
            "tokens": ["<think>", "hm", "</think>", "yes"],
            "format": "think",
            "think": {"open": "<think>", "close": "</think>"},
        }
    )
    with sdk.responses.stream(model=MODEL, input=script) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "yes"
    assert [item.type for item in final.output] == ["reasoning", "message"]


def test_a_call_and_its_result_go_on_from_the_response_before(sdk: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}
    script = json.dumps({"tokens": ['<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'], "format": "hermes"})
    first = sdk.responses.create(model=MODEL, input=script, tools=[tool])
    (call,) = first.output
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"a": 1}
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "5"}]
    again = sdk.responses.create(
        model=MODEL, input=[*result, {"role": "user", "content": "so"}], previous_response_id=first.id
    )
    assert again.output_text == "so"
    assert again.previous_response_id == first.id


def test_a_response_in_the_background_is_answered_at_once_and_fetched_when_it_is_over(sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input=SLOW, background=True)
    assert created.status == "queued"
    done = settled(sdk, created.id)
    assert (done.status, done.output_text) == ("completed", "".join(WORDS))


def test_one_that_runs_in_the_background_is_cancelled(sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input=ENDLESS, background=True)
    assert sdk.responses.cancel(created.id).status == "cancelled"
    kept = sdk.responses.retrieve(created.id)
    assert (kept.status, kept.error) == ("cancelled", None)


def test_one_that_failed_says_why(sdk: openai.OpenAI) -> None:
    script = json.dumps({"tokens": ["a", "b"], "fault": {"kind": "error", "after": 1}})
    created = sdk.responses.create(model=MODEL, input=script, background=True)
    done = settled(sdk, created.id)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.code == "server_error"
    assert done.output_text == "a"


@pytest.mark.parametrize("seen", [0, 5, 20])
def test_a24_a_stream_goes_on_after_a_sequence_number(sdk: openai.OpenAI, seen: int) -> None:
    stream = sdk.responses.create(model=MODEL, input=SLOW, background=True, stream=True)
    begun = list(islice(stream, seen + 1))
    created = begun[0]
    assert created.type == "response.created"
    stream.close()
    rest = list(sdk.responses.retrieve(created.response.id, stream=True, starting_after=seen))
    assert [event.sequence_number for event in begun + rest] == list(range(len(begun) + len(rest)))
    assert text_of(begun + rest) == "".join(WORDS)
    assert rest[-1].type == "response.completed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a24_a_stream_goes_on_after_the_api_was_started_again(stack: Stack, number: signal.Signals) -> None:
    with client_of(stack) as sdk:
        stream = sdk.responses.create(model=MODEL, input=SLOW, background=True, stream=True)
        events = list(islice(stream, 10))
        created = events[0]
        assert created.type == "response.created"
        stack.end("api", number)
        with pytest.raises((httpx.TransportError, openai.APIConnectionError)):
            events.extend(stream)
        stack.start(["api"])
        stack.wait_ready()
        last = events[-1].sequence_number
        events += sdk.responses.retrieve(created.response.id, stream=True, starting_after=last)
        assert text_of(events) == "".join(WORDS)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert sdk.responses.retrieve(created.response.id).output_text == "".join(WORDS)


def test_another_api_process_shows_follows_and_goes_on_from_a_response(
    sdk: openai.OpenAI, shared_stack: Stack, tmp_path: Path
) -> None:
    other = Stack(tmp_path / "home", nats_url=shared_stack.nats_url)
    other.start(["api"])
    try:
        other.wait_ready()
        with client_of(other) as elsewhere:
            created = sdk.responses.create(model=MODEL, input=SLOW, background=True)
            followed = list(elsewhere.responses.retrieve(created.id, stream=True))
            assert text_of(followed) == "".join(WORDS)
            assert elsewhere.responses.retrieve(created.id) == sdk.responses.retrieve(created.id)
            again = elsewhere.responses.create(model=MODEL, input="so", previous_response_id=created.id)
            assert again.output_text == "so"
    finally:
        other.stop()


def test_an_event_stream_of_a_browser_goes_on_by_its_last_event_id(sdk: openai.OpenAI, client: httpx.Client) -> None:
    path = f"/v1/responses/{sdk.responses.create(model=MODEL, input='a b').id}?stream=true"
    events = client.get(path).text.split("\n\n")
    last = events[4].partition("\n")[0].removeprefix("id: ")
    assert client.get(path, headers={"last-event-id": last}).text.split("\n\n") == events[5:]


def test_what_was_asked_is_listed(sdk: openai.OpenAI) -> None:
    said: Any = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "x"},
    ]
    created = sdk.responses.create(model=MODEL, input=said)
    page = sdk.responses.input_items.list(created.id, order="asc", limit=2)
    assert [item.content[0].text for item in page.data] == ["one", "two"]  # pyright: ignore
    assert [item.role for item in page] == ["user", "assistant", "user"]  # pyright: ignore


def test_a_deleted_response_is_gone(sdk: openai.OpenAI, client: httpx.Client) -> None:
    created = sdk.responses.create(model=MODEL, input=ENDLESS, background=True)
    sdk.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        sdk.responses.retrieve(created.id)
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        sdk.responses.create(model=MODEL, input="x", previous_response_id=created.id)
    wait_until(lambda: not client.get("/state/generations").json(), "its generation to end", 5)


def test_one_that_is_not_to_be_stored_cannot_be_fetched(sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input="x", store=False)
    assert created.output_text == "x"
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(created.id)


@pytest.mark.parametrize("identifier", ["resp_1", "17", f"resp_{'0' * 32}"])
def test_an_id_that_nobody_gave_is_a_404(client: httpx.Client, identifier: str) -> None:
    for response in (
        client.get(f"/v1/responses/{identifier}"),
        client.get(f"/v1/responses/{identifier}?stream=true"),
        client.post(f"/v1/responses/{identifier}/cancel"),
        client.delete(f"/v1/responses/{identifier}"),
        client.get(f"/v1/responses/{identifier}/input_items"),
    ):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "response_not_found"


def test_only_what_runs_in_the_background_can_be_cancelled(sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input="x")
    with pytest.raises(openai.BadRequestError, match="background"):
        sdk.responses.cancel(created.id)


def test_an_unknown_model_and_an_unknown_parameter_are_refused(client: httpx.Client) -> None:
    unknown = client.post("/v1/responses", json={"model": "gpt-9", "input": "x"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    misspelt = client.post("/v1/responses", json={"model": "gpt-9", "input": "x", "temprature": 1})
    assert (misspelt.status_code, misspelt.json()["error"]["param"]) == (400, "temprature")
