"""LangChain's package for OpenAI's API, as people have it: by chat completions, by responses and by completions."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import openai
import pytest
from client_packages import KEEPS_CONNECTIONS
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from tests.stack import Stack, wait_until

pytestmark = KEEPS_CONNECTIONS
SLOW = json.dumps({"tokens": ["x"] * 1000, "pace": 0.02})
Opened = Callable[..., ChatOpenAI]


class City(BaseModel):
    """A city."""

    name: str


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def by_responses(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def opened(shared_stack: Stack, by_responses: bool) -> Opened:
    """A model of LangChain's, by one endpoint or the other."""

    def model(**fields: Any) -> ChatOpenAI:
        settings: dict[str, Any] = {"model": "exo/scripted", "api_key": "none", "max_retries": 0, **fields}
        return ChatOpenAI(base_url=f"{shared_stack.url}/v1", use_responses_api=by_responses, **settings)

    return model


@pytest.fixture
async def unblocked() -> AsyncIterator[httpx.AsyncClient]:
    """LangChain's own outlives the event loop of a test."""
    async with httpx.AsyncClient() as one:
        yield one


def script(*tokens: str, **fields: object) -> str:
    return json.dumps({"tokens": tokens, **fields})


def call(name: str, /, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def calling(*calls: str) -> str:
    return script(*calls, format="hermes")


def summed(chunks: list[Any]) -> AIMessageChunk:
    """What LangChain makes of a stream's chunks."""
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


def test_an_answer_in_one_piece(opened: Opened) -> None:
    answer = opened().invoke([SystemMessage("Be brief."), HumanMessage("one two")])
    assert answer.text == "one two"
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (len("one two"), 3)


def test_a_stream_has_the_same_text_and_the_usage(opened: Opened) -> None:
    chunks = list(opened(stream_usage=True).stream("one two"))
    whole = summed(chunks)
    assert len([chunk for chunk in chunks if chunk.text]) > 1
    assert whole.text == "one two"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 3


async def test_answers_come_without_blocking(opened: Opened, unblocked: httpx.AsyncClient) -> None:
    model = opened(http_async_client=unblocked)
    assert (await model.ainvoke("one two")).text == "one two"
    assert summed([chunk async for chunk in model.astream("one two")]).text == "one two"
    assert [answer.text for answer in await model.abatch(["a", "b", "c"])] == ["a", "b", "c"]


def test_a18_a_limit_is_honoured(opened: Opened) -> None:
    assert opened(max_tokens=2).invoke("a b c d").text == "a b"


@pytest.mark.parametrize("stream", [True, False])
def test_a12_tools_are_called_and_their_results_are_taken(opened: Opened, stream: bool) -> None:
    model = opened().bind_tools([get_weather])
    question = HumanMessage(calling("I look. ", call("get_weather", city="Oslo"), call("get_weather", city="Bergen")))
    answer = summed(list(model.stream([question]))) if stream else model.invoke([question])
    assert isinstance(answer, AIMessage)
    assert [(one["name"], one["args"]) for one in answer.tool_calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Bergen"}),
    ]
    results: list[BaseMessage] = [get_weather.invoke(one) for one in answer.tool_calls]
    assert all(isinstance(one, ToolMessage) for one in results)
    second = model.invoke([question, answer, *results, HumanMessage("It rains in both.")])
    assert second.text == "It rains in both."


def test_a_call_can_be_demanded(opened: Opened) -> None:
    for choice in ("any", "get_weather"):
        model = opened().bind_tools([get_weather], tool_choice=choice, strict=True)
        answer = model.invoke(calling(call("get_weather", city="Oslo")))
        assert [one["name"] for one in answer.tool_calls] == ["get_weather"]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("json_schema", script('{"name": ', '"Oslo"}')),
        ("json_mode", script('{"name": ', '"Oslo"}')),
        ("function_calling", calling(call("City", name="Oslo"))),
    ],
)
def test_a_structured_answer_is_read_into_a_model(opened: Opened, method: Any, message: str) -> None:
    assert opened().with_structured_output(City, method=method).invoke(message) == City(name="Oslo")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("fields", "message", "error", "param"),
    [
        ({"model": "gpt-9"}, "hi", openai.NotFoundError, "model"),
        ({"top_p": 2}, "hi", openai.BadRequestError, "top_p"),
        ({"extra_body": {"top_z": 1}}, "hi", openai.BadRequestError, "top_z"),
    ],
)
def test_a_refusal_is_openais_exception(
    opened: Opened, fields: dict[str, Any], message: str, error: type[openai.APIStatusError], param: str, stream: bool
) -> None:
    model = opened(**fields)
    with pytest.raises(error) as refusal:
        list(model.stream(message)) if stream else model.invoke(message)
    assert refusal.value.param == param


def test_a19_a_prompt_over_the_context_is_an_overflow(opened: Opened) -> None:
    with pytest.raises(ContextOverflowError, match="8192"):
        opened().invoke("x" * 9000)


def test_a6_a_failure_midway_is_an_exception(opened: Opened) -> None:
    text = ""
    with pytest.raises((openai.APIError, ValueError), match="the script fails after 2 tokens"):
        for chunk in opened().stream(script("a", "b", "c", pace=0.02, fault={"kind": "error", "after": 2})):
            text += chunk.text
    assert text == "ab"


async def test_a5_a_stream_that_is_closed_ends_its_generation(
    opened: Opened, unblocked: httpx.AsyncClient, client: httpx.Client
) -> None:
    stream = opened(http_async_client=unblocked).astream(SLOW)
    assert await anext(stream)
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]  a generator, and typed as an iterator
    await asyncio.to_thread(wait_until, lambda: not client.get("/state/generations").json(), "the end", 2)


def test_a_text_is_continued_by_the_older_endpoint(shared_stack: Stack) -> None:
    settings: dict[str, Any] = {"model": "exo/scripted", "api_key": "none", "max_retries": 0}
    model = OpenAI(base_url=f"{shared_stack.url}/v1", **settings)
    assert model.invoke("one two") == "one two"
    assert "".join(model.stream("one two")) == "one two"


async def test_texts_become_vectors(shared_stack: Stack, unblocked: httpx.AsyncClient) -> None:
    # It would cut texts by OpenAI's tokens, which are not this model's.
    settings: dict[str, Any] = {"model": "exo/scripted", "api_key": "none", "check_embedding_ctx_length": False}
    settings["http_async_client"] = unblocked
    model = OpenAIEmbeddings(base_url=f"{shared_stack.url}/v1", **settings)
    first, second = model.embed_documents(["The sea was calm.", "Birds came."])
    assert math.isclose(math.hypot(*first), 1, rel_tol=1e-3)
    assert first != second
    assert await model.aembed_query("The sea was calm.") == first
