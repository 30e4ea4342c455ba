"""Ollama's endpoints from a real node with the scripted engine, by Ollama's own client."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

import httpx
import ollama
import pytest

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
THINK = {"format": "think", "think": {"open": "<think>", "close": "</think>"}}


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Its name.

    Returns:
        What it is like there.
    """
    return f"rain in {city}"


@pytest.fixture(scope="module")
def sdk(shared_stack: Stack) -> Iterator[ollama.Client]:
    with ollama.Client(host=f"{shared_stack.url}/ollama") as one:
        yield one


@pytest.fixture
async def async_sdk(shared_stack: Stack) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(host=f"{shared_stack.url}/ollama") as one:
        yield one


def says(script: object) -> str:
    """What makes the scripted engine say something: a text, or a script as JSON."""
    return script if isinstance(script, str) else json.dumps(script)


def asked(script: object, **fields: Any) -> dict[str, Any]:
    """A chat whose only message is a script."""
    return {"model": MODEL, "messages": [{"role": "user", "content": says(script)}], **fields}


def chat(sdk: ollama.Client, script: object, **fields: Any) -> ollama.ChatResponse:
    return sdk.chat(**asked(script, **fields))


def parts(sdk: ollama.Client, script: object, **fields: Any) -> list[ollama.ChatResponse]:
    return list(sdk.chat(**asked(script, **fields), stream=True))


def lines(client: httpx.Client, path: str, body: object) -> list[dict[str, Any]]:
    """The lines of a stream."""
    with client.stream("POST", f"/ollama/api/{path}", json=body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("application/x-ndjson")
        return [json.loads(line) for line in response.read().splitlines()]


def ask_refused(sdk: ollama.Client, script: object = "hi", **fields: Any) -> ollama.ResponseError:
    with pytest.raises(ollama.ResponseError) as refused:
        chat(sdk, script, **fields)
    return refused.value


def test_an_answer_in_one_piece(sdk: ollama.Client) -> None:
    answer = chat(sdk, "one two three")
    assert (answer.message.role, answer.message.content) == ("assistant", "one two three")
    assert (answer.model, answer.done, answer.done_reason) == (MODEL, True, "stop")
    assert (answer.prompt_eval_count, answer.eval_count) == (len("one two three"), 4)
    assert answer.prompt_eval_duration is not None
    assert answer.eval_duration is not None
    assert answer.total_duration is not None
    assert answer.prompt_eval_duration + answer.eval_duration <= answer.total_duration


@pytest.mark.parametrize("stream", [True, False])
def test_a_model_that_is_loaded_costs_no_time_to_load(sdk: ollama.Client, stream: bool) -> None:
    script = {"tokens": ["a"], "prefill": 0.2}
    answer = parts(sdk, script)[-1] if stream else chat(sdk, script)
    assert answer.load_duration == 0
    vectors = sdk.embed(MODEL, ["a", "b"])
    assert vectors.load_duration == 0
    assert vectors.total_duration is not None


async def test_answers_without_blocking(async_sdk: ollama.AsyncClient) -> None:
    whole = await async_sdk.chat(**asked("hi there"))
    assert whole.message.content == "hi there"
    streamed = [part.message.content async for part in await async_sdk.chat(**asked("hi there"), stream=True)]
    assert streamed == ["hi", " there", ""]
    prompted = await async_sdk.generate(MODEL, "hi there")
    assert prompted.response == "hi there"


def test_a_stream_has_a_line_a_token_and_one_end(sdk: ollama.Client) -> None:
    found = parts(sdk, "one two three")
    assert [part.message.content for part in found] == ["one", " two", " three", ""]
    assert [part.done for part in found] == [False, False, False, True]
    assert found[-1].eval_count == 4
    assert found[-1].done_reason == "stop"
    assert all(part.message.role == "assistant" and part.created_at for part in found)


def test_a_stream_is_what_comes_unless_told_otherwise(client: httpx.Client) -> None:
    assert [line["done"] for line in lines(client, "chat", asked("hi"))] == [False, True]
    assert [line["done"] for line in lines(client, "generate", {"model": MODEL, "prompt": "hi"})] == [False, True]


def test_a7_a_character_cut_over_tokens_comes_whole(sdk: ollama.Client) -> None:
    rocket = "\N{ROCKET}".encode()
    found = parts(sdk, {"tokens": [list(rocket[:2]), list(rocket[2:]), "!"]})
    assert "".join(part.message.content or "" for part in found) == "\N{ROCKET}!"


def test_a8_a18_stop_sequences_and_the_limit_end_the_answer(sdk: ollama.Client) -> None:
    script = {"tokens": ["X", "Y", "Z", "E", "N", "D", " tail"]}
    stopped = chat(sdk, script, options={"stop": ["END"]})
    assert (stopped.message.content, stopped.done_reason) == ("XYZ", "stop")
    limited = chat(sdk, "a b c d", options={"num_predict": 2})
    assert (limited.message.content, limited.done_reason, limited.eval_count) == ("a b", "length", 2)
    assert chat(sdk, "a b c d", options=ollama.Options(num_predict=-1)).message.content == "a b c d"


def test_a19_the_context_asked_for_bounds_prompt_and_answer(sdk: ollama.Client) -> None:
    script = "word " * 20
    cut = chat(sdk, script.strip(), options={"num_ctx": 104})
    assert (cut.done_reason, cut.eval_count) == ("length", 5)
    too_long = ask_refused(sdk, script, options={"num_ctx": 50})
    assert (too_long.status_code, "messages" in too_long.error) == (400, True)
    assert "50 tokens" in too_long.error
    assert "101" in too_long.error
    assert chat(sdk, "hi", options={"num_ctx": 1_000_000, "num_predict": 100_000}).message.content == "hi"


def test_thoughts_stand_beside_the_answer(sdk: ollama.Client) -> None:
    script = {"tokens": ["<think>", "hm", "</think>", "yes"], **THINK}
    answer = chat(sdk, script, think=True)
    assert (answer.message.thinking, answer.message.content) == ("hm", "yes")
    found = parts(sdk, script, think=True)
    assert [(part.message.thinking, part.message.content) for part in found] == [
        ("hm", ""),
        (None, "yes"),
        (None, ""),
    ]
    prompted = sdk.generate(MODEL, says(script), think=True)
    assert (prompted.thinking, prompted.response) == ("hm", "yes")
    history = [{"role": "user", "content": "hi"}, answer.message, {"role": "user", "content": "and now?"}]
    assert sdk.chat(MODEL, history).message.content == "and now?"


@pytest.mark.parametrize("stream", [True, False])
def test_a12_tools_are_called_and_their_results_are_taken(sdk: ollama.Client, stream: bool) -> None:
    script = {"tokens": ["let me look ", CALL, CALL], "format": "hermes"}
    found = parts(sdk, script, tools=[get_weather]) if stream else [chat(sdk, script, tools=[get_weather])]
    calls = [call for part in found for call in part.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Oslo"}),
    ]
    assert "".join(part.message.content or "" for part in found).strip() == "let me look"
    assert found[-1].done_reason == "stop"
    assert sum(bool(part.done) for part in found) == 1
    results = [
        {"role": "tool", "content": get_weather(**call.function.arguments), "tool_name": "get_weather"}
        for call in calls
    ]
    history: Sequence[Any] = [
        {"role": "user", "content": "What is the weather in Oslo?"},
        ollama.Message(role="assistant", tool_calls=calls),
        *results,
        {"role": "user", "content": "it rains"},
    ]
    assert sdk.chat(MODEL, history, tools=[get_weather]).message.content == "it rains"


def test_calls_have_ids_and_indexes(client: httpx.Client) -> None:
    script = {"tokens": [CALL, CALL], "format": "hermes"}
    tools = [{"type": "function", "function": {"name": "get_weather"}}]
    answer = client.post("/ollama/api/chat", json=asked(script, tools=tools, stream=False)).json()
    calls = answer["message"]["tool_calls"]
    assert [call["function"]["index"] for call in calls] == [0, 1]
    assert len({call["id"] for call in calls}) == 2


def test_a_prompt_is_answered(sdk: ollama.Client) -> None:
    answer = sdk.generate(MODEL, "one two", system="be brief")
    assert (answer.response, answer.done, answer.done_reason) == ("one two", True, "stop")
    found = list(sdk.generate(MODEL, "one two", stream=True))
    assert [part.response for part in found] == ["one", " two", ""]
    assert [part.done for part in found] == [False, False, True]


def test_a_raw_prompt_stands_as_it_is(sdk: ollama.Client) -> None:
    script = {"tokens": ["<think>", "hm", "</think>", CALL], **THINK}
    assert sdk.generate(MODEL, says(script), raw=True).response == f"<think>hm</think>{CALL}"


def test_logprobs_are_told(sdk: ollama.Client, client: httpx.Client) -> None:
    refused = client.post("/ollama/api/chat", json=asked("hi", top_logprobs=2, stream=False))
    assert refused.status_code == 400
    answer = chat(sdk, "hi", logprobs=True, top_logprobs=1)
    assert answer.message.content == "hi"


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "llama3.2"}, 404, MODEL),
        ({"options": {"temperature": 3}}, 400, "options.temperature"),
        ({"options": {"mirostat": 2}}, 400, "options.mirostat"),
        ({"options": {"top_z": 2}}, 400, "options.top_z"),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, 400, "8192"),
        ({"messages": [{"role": "user", "content": "what is this?", "images": [b"GIF89a"]}]}, 400, "images"),
        ({"keep_alive": "soon"}, 400, "keep_alive"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_errors_are_the_clients_exceptions(
    sdk: ollama.Client, fields: dict[str, Any], status: int, words: str, stream: bool
) -> None:
    with pytest.raises(ollama.ResponseError) as refused:
        if stream:
            list(sdk.chat(**{**asked("hi"), **fields}, stream=True))
        else:
            sdk.chat(**{**asked("hi"), **fields})
    assert refused.value.status_code == status
    assert words in refused.value.error


def test_a20_a_bad_body_is_refused_before_the_model_is_looked_up(client: httpx.Client) -> None:
    for content in (b"{broken", b"", b"\xff\xfe", b'{"model": "nope", "messages": 5}', b'{"model": "nope", "top": 1}'):
        response = client.post("/ollama/api/chat", content=content)
        assert response.status_code == 400
        assert list(response.json()) == ["error"]


def test_a29_a_body_over_the_limit_is_a_413(client: httpx.Client) -> None:
    response = client.post("/ollama/api/chat", content=b" " * (33 * 2**20))
    assert (response.status_code, list(response.json())) == (413, ["error"])


def test_a6_a_failure_before_the_first_token_has_a_status(sdk: ollama.Client) -> None:
    script = {"tokens": ["a"], "fault": {"kind": "error", "after": 0}}
    assert ask_refused(sdk, script).status_code == 500
    with pytest.raises(ollama.ResponseError) as streamed:
        parts(sdk, script)
    assert streamed.value.status_code == 500


def test_a6_a_failure_midway_is_an_error_and_no_end(client: httpx.Client, sdk: ollama.Client) -> None:
    script = {"tokens": ["a", "b", "c"], "pace": 0.02, "fault": {"kind": "error", "after": 2}}
    *told, last = lines(client, "chat", asked(script))
    assert [line["message"]["content"] for line in told] == ["a", "b"]
    assert list(last) == ["error"]
    texts: list[str | None] = []
    with pytest.raises(ollama.ResponseError):
        texts += (part.message.content for part in sdk.chat(**asked(script), stream=True))
    assert texts == ["a", "b"]


def test_a_silent_stream_shows_that_it_lives(client: httpx.Client) -> None:
    first, *rest = lines(client, "generate", {"model": MODEL, "prompt": says({"tokens": ["a"], "prefill": 3})})
    assert (first["response"], first["done"]) == ("", False)
    assert [line["response"] for line in rest] == ["a", ""]


def test_a5_a_client_that_closes_its_stream_frees_the_slot(client: httpx.Client, sdk: ollama.Client) -> None:
    script = {"tokens": ["x"] * 500, "pace": 0.05}
    stream = cast("Any", sdk.chat(**asked(script), stream=True))
    assert next(stream).message.content == "x"
    stream.close()
    wait_until(lambda: not client.get("/state/generations").json(), "the generation to end", 2)
    assert client.get("/state/ended").json()[-1]["finish_reason"] == "cancelled"


def test_the_models_are_listed_with_a_tag_and_found_with_it_and_without(sdk: ollama.Client) -> None:
    (listed,) = sdk.list().models
    assert listed.model == f"{MODEL}:latest"
    assert listed.size == 1_000_000
    assert listed.details is not None
    assert listed.details.family == "scripted"
    for name in (MODEL, f"{MODEL}:latest", "scripted", "SCRIPTED:latest"):
        shown = sdk.show(name)
        assert shown.modelinfo is not None
        assert shown.modelinfo["scripted.context_length"] == 8192
        assert shown.capabilities is not None
        assert shown.capabilities == ["completion", "tools", "thinking"]
        answer = sdk.chat(name, [{"role": "user", "content": "hi"}])
        assert (answer.message.content, answer.model) == ("hi", name)
    with pytest.raises(ollama.ResponseError) as unknown:
        sdk.show("llama3.2")
    assert unknown.value.status_code == 404


def test_probes_are_answered_with_a_body_and_without(client: httpx.Client) -> None:
    assert client.get("/ollama").text == "Ollama is running"
    assert client.get("/ollama/api/version").json().keys() == {"version"}
    for path in ("/ollama", "/ollama/", "/ollama/api/version", "/ollama/api/tags"):
        response = client.head(path)
        assert (response.status_code, response.content) == (200, b"")


def test_what_is_not_there_is_told_in_ollamas_envelope(client: httpx.Client) -> None:
    for response in (client.post("/ollama/api/push", json={}), client.get("/ollama/api/chat"), client.get("/api/tags")):
        assert response.status_code in {404, 405}
        assert list(response.json()) == ["error"]


def test_a_model_that_is_there_is_pulled_at_once(sdk: ollama.Client) -> None:
    assert sdk.pull("scripted").status == "success"
    found = [part.status for part in sdk.pull("scripted", stream=True)]
    assert (found[0], found[-1]) == ("pulling manifest", "success")
    with pytest.raises(ollama.ResponseError) as unknown:
        list(sdk.pull("llama3.2", stream=True))
    assert unknown.value.status_code == 404


def test_a25_texts_become_vectors_of_length_one_in_their_order(sdk: ollama.Client, client: httpx.Client) -> None:
    texts = ["the sea", "the land", "the sea"]
    answer = sdk.embed(MODEL, texts)
    assert (answer.model, answer.prompt_eval_count) == (MODEL, sum(map(len, texts)))
    first, second, third = answer.embeddings
    assert first == third != second
    assert sum(number * number for number in first) == pytest.approx(1)
    assert sdk.embed(MODEL, "the sea").embeddings == [first]
    assert len(sdk.embed(MODEL, "the sea", dimensions=8).embeddings[0]) == 8
    assert list(sdk.embeddings(MODEL, "the sea").embedding) == list(first)
    body = {"model": MODEL, "input": "the sea"}
    assert client.post("/v1/embeddings", json=body).json()["data"][0]["embedding"] == pytest.approx(first)


@pytest.mark.parametrize("fields", [{}, {"truncate": True}])
def test_a19_a_text_over_the_context_is_cut_at_its_end(sdk: ollama.Client, fields: dict[str, bool]) -> None:
    cut = sdk.embed(MODEL, ["x" * 8192 + "y", "x" * 8192], **fields)
    assert cut.embeddings[0] == cut.embeddings[1]
    assert cut.prompt_eval_count == 2 * 8192
    shorter = sdk.embed(MODEL, ["the sea", "the"], options={"num_ctx": 3}, **fields)
    assert shorter.embeddings[0] == shorter.embeddings[1]
    assert shorter.prompt_eval_count == 6
    assert sdk.embed(MODEL, "the sea", options={"num_ctx": 1_000_000}).prompt_eval_count == len("the sea")


async def test_texts_become_vectors_without_blocking(async_sdk: ollama.AsyncClient) -> None:
    assert len((await async_sdk.embed(MODEL, ["a", "b"])).embeddings) == 2


def test_without_a_text_there_is_no_vector(sdk: ollama.Client, client: httpx.Client) -> None:
    assert sdk.embed(MODEL, []).embeddings == sdk.embed(MODEL, "").embeddings == []
    assert client.post("/ollama/api/embeddings", json={"model": MODEL}).json() == {"embedding": []}


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        (
            "embed",
            {"input": ["a", "x" * 9000], "truncate": False},
            "input[1]: the context is 8192 tokens",
        ),
        ("embed", {"input": "abcde", "truncate": False, "options": {"num_ctx": 4}}, "4 tokens, and it has 5"),
        ("embed", {"input": "a", "options": {"num_ctx": 0}}, "num_ctx"),
        ("embed", {"input": 5}, "input"),
        ("embed", {"input": "a", "truncate": 1}, "truncate"),
        ("embed", {"input": "a", "options": {"temperature": 1}}, "options.temperature"),
        ("embed", {"input": "a", "top": 1}, "top"),
        ("embeddings", {"prompt": "x" * 9000}, "prompt"),
    ],
)
def test_what_cannot_become_a_vector_is_refused_by_name(
    client: httpx.Client, path: str, fields: dict[str, object], words: str
) -> None:
    refused = client.post(f"/ollama/api/{path}", json={"model": MODEL, **fields})
    assert refused.status_code == 400
    assert words in refused.json()["error"]
