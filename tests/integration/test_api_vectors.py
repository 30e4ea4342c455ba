"""What models of each family wrote comes out right at the end of the real way: API, master, worker, runner."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import openai
import pytest

from tests.stack import Stack
from tests.vector_cases import Outcome, Vector, pieces, problem, vectors

each_vector = pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["id"])
CORE = [vector for vector in vectors() if vector["expect"]["tool_calls"]][::7]


def body(vector: Vector, tokens: Sequence[bytes]) -> dict[str, Any]:
    """The request whose script is the vector."""
    script = {
        "tokens": [list(token) for token in tokens],
        "finish": vector["finish"],
        "format": vector["format"],
        "think": vector.get("think"),
    }
    message = {"role": "user", "content": json.dumps(script)}
    given = {key: vector[key] for key in ("tools", "stop") if key in vector}
    return {"model": "exo/scripted", "messages": [message], **given}


def whole(client: httpx.Client, request: Mapping[str, Any]) -> Outcome:
    response = client.post("/v1/chat/completions", json=request)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    message = choice["message"]
    assert message.get("reasoning") == message.get("reasoning_content")
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "tool_calls": [call["function"] for call in message.get("tool_calls", [])],
        "finish_reason": choice["finish_reason"],
    }


def streamed(client: httpx.Client, request: Mapping[str, Any]) -> Outcome:
    with client.stream("POST", "/v1/chat/completions", json={**request, "stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    deltas = [choice["delta"] for choice in choices]
    (finish_reason,) = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return {
        "content": "".join(delta.get("content", "") for delta in deltas),
        "reasoning": "".join(delta.get("reasoning_content", "") for delta in deltas),
        "tool_calls": calls_of([call for delta in deltas for call in delta.get("tool_calls", [])]),
        "finish_reason": finish_reason,
    }


def calls_of(deltas: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    calls: list[dict[str, str]] = []
    for delta in deltas:
        if "id" in delta:
            assert delta["index"] == len(calls)
            calls.append({"id": delta["id"], "name": delta["function"]["name"], "arguments": ""})
        calls[delta["index"]]["arguments"] += delta["function"]["arguments"]
    assert len({call["id"] for call in calls}) == len(calls)
    return calls


@each_vector
def test_a11_a_vector_comes_out_right_whole_and_streamed(client: httpx.Client, vector: Vector) -> None:
    request = body(vector, pieces(vector))
    for outcome in (whole(client, request), streamed(client, request)):
        assert problem(vector, outcome) is None


@pytest.mark.parametrize("vector", CORE, ids=lambda vector: vector["id"])
async def test_the_client_library_puts_streamed_calls_together(shared_stack: Stack, vector: Vector) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as sdk,
        sdk.chat.completions.stream(**body(vector, pieces(vector))) as stream,
    ):
        completion = await stream.get_final_completion()
    message = completion.choices[0].message
    calls = [call.function for call in message.tool_calls or []]
    outcome = {
        "content": message.content or "",
        "reasoning": getattr(message, "reasoning_content", ""),
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in calls],
        "finish_reason": completion.choices[0].finish_reason,
    }
    assert problem(vector, outcome) is None


def test_a15_an_answer_with_calls_goes_on_as_history(client: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    call = {"id": "toolu_of-another-server", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": call["id"], "content": "noon"},
        {"role": "user", "content": "It is noon"},
    ]
    request = {"model": "exo/scripted", "messages": messages, "tools": tools, "tool_choice": "auto"}
    assert whole(client, request)["content"] == "It is noon"


def test_without_parallel_calls_the_answer_ends_after_the_first(client: httpx.Client) -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    vector: Vector = {"format": "hermes", "finish": "stop"}
    request = {**body(vector, [call.encode()] * 3), "parallel_tool_calls": False}
    assert whole(client, request)["tool_calls"] == [{"name": "now", "arguments": "{}"}]
    assert whole(client, request)["finish_reason"] == "tool_calls"
    assert len(whole(client, {**request, "parallel_tool_calls": True})["tool_calls"]) == 3


def test_with_tools_forbidden_a_call_is_text(client: httpx.Client) -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    request = {**body({"format": "hermes", "finish": "stop"}, [call.encode()]), "tool_choice": "none"}
    outcome = whole(client, request)
    assert (outcome["content"], outcome["tool_calls"], outcome["finish_reason"]) == (call, [], "stop")


def test_the_tokens_of_the_reasoning_are_in_the_usage(client: httpx.Client) -> None:
    think = {"open": "<think>", "close": "</think>"}
    vector: Vector = {"format": "think", "finish": "stop", "think": think}
    tokens = [b"<think>", b"one", b"two", b"</think>", b"three"]
    usage = client.post("/v1/chat/completions", json=body(vector, tokens)).json()["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 2}
