"""Chat completions from a real node with the scripted engine."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import httpx
import openai
import pytest

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"


@pytest.fixture
async def sdk(shared_stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def body(message: object, **fields: object) -> dict[str, object]:
    """A request whose only message is a text, or a script as JSON."""
    content = message if isinstance(message, str) else json.dumps(message)
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}


def events(client: httpx.Client, **fields: object) -> list[str]:
    """The lines of a stream that are not empty."""
    with client.stream("POST", "/v1/chat/completions", json={**fields, "stream": True}) as response:
        assert response.status_code == 200, response.read()
        return [line for line in response.iter_lines() if line]


def ask(client: httpx.Client, message: object, **fields: object) -> httpx.Response:
    return client.post("/v1/chat/completions", json=body(message, **fields))


def error_of(response: httpx.Response) -> dict[str, object]:
    return response.json()["error"]


def text_of(lines: list[str]) -> str:
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", []))


def generations(client: httpx.Client) -> dict[str, object]:
    return client.get("/state/generations").json()


def finish_reasons(client: httpx.Client) -> list[str]:
    return [ended["finish_reason"] for ended in client.get("/state/ended").json()]


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a1_a_stream_ends_with_done_whatever_its_reason(client: httpx.Client, finish: str) -> None:
    lines = events(client, **body({"tokens": ["a", "b"], "finish": finish}))
    assert all(line.startswith(("id: ", "data: ", ": ")) for line in lines)
    assert [line for line in lines if line == "data: [DONE]"] == lines[-1:]


def test_a1_a_stream_is_not_to_be_buffered(client: httpx.Client) -> None:
    with client.stream("POST", "/v1/chat/completions", json=body("hi", stream=True)) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        response.read()


async def test_a2_the_client_library_reads_a_stream(sdk: openai.AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(**body("one two three", stream=True))  # pyright: ignore
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two three"
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1


async def test_a4_usage_in_a_stream_and_without_one(sdk: openai.AsyncOpenAI) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = await sdk.chat.completions.create(**body("one two", **options))  # pyright: ignore
    chunks = [chunk async for chunk in stream]
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    whole = await sdk.chat.completions.create(**body("one two"))  # pyright: ignore
    for usage in (chunks[-1].usage, whole.usage):
        assert usage is not None
        assert usage.prompt_tokens == len("one two")
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


SLOW = {"tokens": ["x"] * 500, "pace": 0.05}
NEVER = {"tokens": ["x"], "prefill": 60}


@pytest.mark.parametrize(("script", "read_first"), [(NEVER, False), (SLOW, True)], ids=["before", "midway"])
def test_a5_a_client_that_closes_its_stream_frees_the_slot(
    client: httpx.Client, shared_stack: Stack, script: object, read_first: bool
) -> None:
    before = len(finish_reasons(client))
    with httpx.Client(base_url=shared_stack.url) as leaving:
        with leaving.stream("POST", "/v1/chat/completions", json=body(script, stream=True)) as response:
            if read_first:
                lines = response.iter_lines()
                assert any('"content":"x"' in line for line in lines)
        left = time.monotonic()
    wait_until(lambda: not generations(client), "the generation to end", 5)
    assert time.monotonic() - left < 2
    assert finish_reasons(client)[before:] == ["cancelled"]


def test_a5_a_client_that_closes_without_a_stream_frees_the_slot(client: httpx.Client, shared_stack: Stack) -> None:
    before = len(finish_reasons(client))
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=shared_stack.url, timeout=0.5) as leaving:
        ask(leaving, SLOW)
    wait_until(lambda: not generations(client), "the generation to end", 2)
    assert finish_reasons(client)[before:] == ["cancelled"]


async def test_a5_a_client_that_closes_while_it_is_queued_leaves_the_queue(shared_stack: Stack) -> None:
    async with httpx.AsyncClient(base_url=shared_stack.url, timeout=30) as client:

        async def waiting() -> int:
            live = (await client.get("/state/generations")).json().values()
            return sum(generation["instance_id"] is None for generation in live)

        async def until(queued: int) -> None:
            async with asyncio.timeout(5):
                while await waiting() != queued:
                    pass

        slots = next(iter((await client.get("/state/instances")).json().values()))["slots"]
        running = [asyncio.create_task(client.post("/v1/chat/completions", json=body(SLOW))) for _ in range(slots)]
        queued = asyncio.create_task(client.post("/v1/chat/completions", json=body("queued")))
        await until(1)
        queued.cancel()
        await until(0)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, queued, return_exceptions=True)
        async with asyncio.timeout(5):
            while (await client.get("/state/generations")).json():
                pass


def test_a6_a_failure_midway_ends_the_stream_with_an_error(client: httpx.Client) -> None:
    lines = events(
        client, **body({"tokens": ["a", "b", "c", "d"], "pace": 0.02, "fault": {"kind": "error", "after": 3}})
    )
    assert text_of(lines) == "abc"
    assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "engine_error"
    assert lines[-1] == "data: [DONE]"
    assert not any('"finish_reason":"' in line for line in lines)


def test_a6_a_failure_without_a_stream_is_a_5xx(client: httpx.Client) -> None:
    response = ask(client, {"tokens": ["a", "b"], "fault": {"kind": "error", "after": 1}})
    assert response.status_code == 500
    assert error_of(response)["code"] == "engine_error"


def test_a6_a_failure_before_the_first_token_has_a_status_even_for_a_stream(client: httpx.Client) -> None:
    response = ask(client, {"tokens": ["a"], "fault": {"kind": "error", "after": 0}}, stream=True)
    assert response.status_code == 500
    assert error_of(response)["code"] == "engine_error"


def test_a7_a_character_that_is_cut_over_tokens_comes_whole(client: httpx.Client) -> None:
    emoji = list("😀".encode())
    lines = events(client, **body({"tokens": ["a", emoji[:2], emoji[2:], "b"]}))
    assert text_of(lines) == "a😀b"
    assert not any("\ufffd" in line for line in lines)


@pytest.mark.parametrize("stream", [True, False])
def test_a8_nothing_of_a_stop_sequence_is_sent(client: httpx.Client, stream: bool) -> None:
    request = body({"tokens": ["X", "Y", "Z", "E", "N", "D", " tail"]}, stop=["END"])
    if stream:
        lines = events(client, **request)
        assert text_of(lines) == "XYZ"
        assert any('"finish_reason":"stop"' in line for line in lines)
    else:
        choice = client.post("/v1/chat/completions", json=request).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("XYZ", "stop")


@pytest.mark.parametrize("stop", ["c", ["x", "c"]])
def test_a10_stop_as_text_and_as_list(client: httpx.Client, stop: object) -> None:
    assert ask(client, "ab c d", stop=stop).json()["choices"][0]["message"]["content"] == "ab "


@pytest.mark.parametrize("stop", [[], None])
def test_a10_no_stop(client: httpx.Client, stop: object) -> None:
    assert ask(client, "ab c d", stop=stop).json()["choices"][0]["message"]["content"] == "ab c d"


def test_a10_an_empty_stop_is_refused(client: httpx.Client) -> None:
    assert ask(client, "ab", stop="").status_code == 400


def test_a17_developer_is_a_role_and_wizard_is_none(client: httpx.Client) -> None:
    for role, status in (("developer", 200), ("wizard", 400)):
        messages = [{"role": role, "content": "be brief"}, {"role": "user", "content": "hi"}]
        response = client.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})
        assert response.status_code == status


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a18_the_limit_ends_the_answer(client: httpx.Client, name: str) -> None:
    answer = ask(client, "a b c d", **{name: 2}).json()
    assert answer["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "a b"},
        "finish_reason": "length",
    }
    assert answer["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [True, False])
def test_a19_a_prompt_over_the_context_is_refused_with_both_numbers(client: httpx.Client, stream: bool) -> None:
    response = ask(client, "x" * 9000, stream=stream)
    assert response.status_code == 400
    error = error_of(response)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "8192" in str(error["message"])
    assert "9000" in str(error["message"])


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": "nope", "messages": []}',
        b'{"model": "nope"}',
        b'{"model": "nope", "messages": null}',
        b'{"model": "nope", "messages": 5}',
        b'{"model": "nope", "messages": [{"role": "user", "content": "x"}], "temperature": "hot"}',
        b"{broken",
        b"",
        b"\xff\xfe",
    ],
)
def test_a20_a_bad_body_is_refused_before_the_model_is_looked_up(client: httpx.Client, content: bytes) -> None:
    response = client.post("/v1/chat/completions", content=content)
    assert response.status_code == 400
    assert set(error_of(response)) == {"message", "type", "param", "code"}
    assert error_of(response)["type"] == "invalid_request_error"


def test_an_unknown_model_is_a_404_that_lists_the_known_ones(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json={**body("hi"), "model": "gpt-9"})
    assert response.status_code == 404
    assert error_of(response)["code"] == "model_not_found"
    assert MODEL in str(error_of(response)["message"])


@pytest.mark.parametrize("name", ["exo/scripted", "scripted", "SCRIPTED"])
def test_a_model_answers_to_its_short_name(client: httpx.Client, name: str) -> None:
    assert client.post("/v1/chat/completions", json={**body("hi"), "model": name}).json()["model"] == MODEL


def test_a29_four_megabytes_are_answered(client: httpx.Client, shared_stack: Stack) -> None:
    response = ask(client, "x" * 4_000_000)
    assert response.status_code == 400
    assert error_of(response)["code"] == "context_length_exceeded"
    assert ask(client, "still there?").status_code == 200


def test_a29_more_than_inline_is_answered_too(client: httpx.Client) -> None:
    assert error_of(ask(client, "x" * 9_000_000))["code"] == "context_length_exceeded"


def test_a29_a_body_over_the_limit_is_a_413(client: httpx.Client) -> None:
    for content in (b" " * (33 * 2**20), (b" " * 2**20 for _ in range(33))):
        response = client.post("/v1/chat/completions", content=content)
        assert response.status_code == 413
        assert error_of(response)["code"] == "request_too_large"
    assert ask(client, "still there?").status_code == 200


def test_a_silent_stream_shows_signs_of_life_and_none_after_the_end(client: httpx.Client) -> None:
    lines = events(client, **body({"tokens": ["a"], "prefill": 3}))
    comments = [index for index, line in enumerate(lines) if line.startswith(":")]
    assert comments == [0]
    assert text_of(lines) == "a"


async def test_a21_three_choices_have_their_own_indexes_and_finishes(sdk: openai.AsyncOpenAI) -> None:
    options = {"n": 3, "stream": True, "stream_options": {"include_usage": True}}
    stream = await sdk.chat.completions.create(**body("one two", **options))  # pyright: ignore
    *told, last = [chunk async for chunk in stream]
    choices = [choice for chunk in told for choice in chunk.choices]
    for index in range(3):
        mine = [choice for choice in choices if choice.index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in mine) == "one two"
        assert [choice.finish_reason for choice in mine] == [None] * (len(mine) - 1) + ["stop"]
    whole = await sdk.chat.completions.create(**body("one two", n=3))  # pyright: ignore
    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in whole.choices] == [
        (index, "one two", "stop") for index in range(3)
    ]
    alone = await sdk.chat.completions.create(**body("one two"))  # pyright: ignore
    for usage in (last.usage, whole.usage):
        assert usage is not None
        assert alone.usage is not None
        assert usage.prompt_tokens == alone.usage.prompt_tokens
        assert usage.completion_tokens == 3 * alone.usage.completion_tokens


def test_a21_all_choices_end_when_the_client_goes(client: httpx.Client, shared_stack: Stack) -> None:
    before = len(finish_reasons(client))
    request = body(SLOW, stream=True, n=3)
    with (
        httpx.Client(base_url=shared_stack.url) as leaving,
        leaving.stream("POST", "/v1/chat/completions", json=request) as response,
    ):
        assert any('"content":"x"' in line for line in response.iter_lines())
    wait_until(lambda: not generations(client), "the generations to end", 2)
    assert finish_reasons(client)[before:] == ["cancelled"] * 3


def test_a21_a_choice_that_fails_takes_the_others_along(client: httpx.Client) -> None:
    response = ask(client, {"tokens": ["a", "b"], "fault": {"kind": "error", "after": 1}}, n=2)
    assert response.status_code == 500
    assert error_of(response)["code"] == "engine_error"
    wait_until(lambda: not generations(client), "the generations to end", 2)
