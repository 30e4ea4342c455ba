"""Completions from a real node with the scripted engine, by OpenAI's client."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"


@pytest.fixture
async def sdk(shared_stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
def blocking(shared_stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def script(**fields: Any) -> str:
    return json.dumps(fields)


def test_a_text_is_continued_as_it_stands(blocking: openai.OpenAI) -> None:
    answer = blocking.completions.create(model=MODEL, prompt="one two three")
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason, choice.logprobs) == (0, "one two three", "stop", None)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("one two three")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a18_sixteen_tokens_are_the_default(blocking: openai.OpenAI) -> None:
    prompt = script(tokens=["x"] * 20)
    (choice,) = blocking.completions.create(model=MODEL, prompt=prompt).choices
    assert (choice.text, choice.finish_reason) == ("x" * 16, "length")
    (choice,) = blocking.completions.create(model=MODEL, prompt=prompt, max_tokens=3).choices
    assert (choice.text, choice.finish_reason) == ("xxx", "length")


async def test_a2_a4_a_stream_has_one_finish_and_the_usage_that_was_asked_for(sdk: openai.AsyncOpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = await sdk.completions.create(model=MODEL, prompt="one two", stream=True, stream_options=options)
    *told, last = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in told) == "one two"
    assert [chunk.choices[0].finish_reason for chunk in told] == [None] * (len(told) - 1) + ["stop"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.prompt_tokens == len("one two")
    assert {chunk.id for chunk in told} == {last.id}


def test_several_prompts_have_their_choices_one_after_the_other(blocking: openai.OpenAI) -> None:
    answer = blocking.completions.create(model=MODEL, prompt=["one", "two words"], n=2)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "one"),
        (1, "one"),
        (2, "two words"),
        (3, "two words"),
    ]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("one") + len("two words")
    assert answer.usage.completion_tokens == 2 + 2 + 3 + 3


@pytest.mark.parametrize("several", [False, True])
def test_tokens_are_taken_as_they_are_and_echoed_as_text(blocking: openai.OpenAI, several: bool) -> None:
    tokens = list(b"one two")
    prompt = [tokens, list(b"three")] if several else tokens
    answer = blocking.completions.create(model=MODEL, prompt=prompt, echo=True)
    texts = ["one twoone two", "threethree"] if several else ["one twoone two"]
    assert [choice.text for choice in answer.choices] == texts


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_is_echoed_before_what_follows_it(blocking: openai.OpenAI, stream: bool) -> None:
    answer: Any = blocking.completions.create(model=MODEL, prompt="hi", echo=True, stop="hi", stream=stream)
    parts = answer if stream else [answer]
    assert "".join(part.choices[0].text for part in parts) == "hi"


def test_markers_of_calls_and_reasoning_are_text(blocking: openai.OpenAI) -> None:
    text = '<think>hm</think><tool_call>{"name": "now", "arguments": {}}</tool_call>'
    think = {"open": "<think>", "close": "</think>"}
    prompt = script(tokens=[text], format="hermes", think=think)
    assert blocking.completions.create(model=MODEL, prompt=prompt).choices[0].text == text


def test_a_token_that_the_model_does_not_have_is_named(blocking: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        blocking.completions.create(model=MODEL, prompt=[1_000_000])
    assert refusal.value.param == "prompt"
    assert "1000000" in refusal.value.message


@pytest.mark.parametrize("stream", [True, False])
def test_a19_a_prompt_over_the_context_names_the_prompt(blocking: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        blocking.completions.create(model=MODEL, prompt="x" * 9000, stream=stream)
    assert (refusal.value.code, refusal.value.param) == ("context_length_exceeded", "prompt")
    assert "9016" in refusal.value.message


def test_a20_a_bad_body_is_refused_before_the_model_is_looked_up(client: httpx.Client) -> None:
    for content in (b'{"model": "nope", "prompt": []}', b'{"model": "nope"}', b"{", b"null"):
        response = client.post("/v1/completions", content=content)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
    unknown = client.post("/v1/completions", json={"model": "nope", "prompt": "x"})
    assert unknown.status_code == 404


def test_a5_a_client_that_goes_ends_all_its_prompts(client: httpx.Client, shared_stack: Stack) -> None:
    prompt = script(tokens=["x"] * 500, pace=0.05)
    body = {"model": MODEL, "prompt": [prompt, prompt], "max_tokens": 400, "stream": True}
    with (
        httpx.Client(base_url=shared_stack.url) as leaving,
        leaving.stream("POST", "/v1/completions", json=body) as response,
    ):
        assert any('"text":"x"' in line for line in response.iter_lines())
    wait_until(lambda: not client.get("/state/generations").json(), "the generations to end", 2)


def test_a6_a_failure_midway_ends_the_stream_with_an_error(blocking: openai.OpenAI) -> None:
    prompt = script(tokens=["a", "b", "c"], pace=0.02, fault={"kind": "error", "after": 2})
    text = ""
    with pytest.raises(openai.APIError) as failure:
        for chunk in blocking.completions.create(model=MODEL, prompt=prompt, stream=True):
            text += chunk.choices[0].text
    assert text == "ab"
    assert failure.value.code == "engine_error"
