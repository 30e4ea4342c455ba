"""`/v1/embeddings` from a real node with the scripted engine, by OpenAI's own client."""

import asyncio
import json
import math
import re
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from struct import unpack
from typing import Any

import httpx
import openai
import pytest

from exo.bus.chunks import read_chunks
from exo.bus.client import connect
from exo.config import Settings
from exo.domain.ids import TaskId
from exo.domain.messages.events import GenerationFinished, GenerationQueued
from exo.runner.engines.scripted_tokenizer import FIRST_PIECE
from tests.cluster.history import logged_of, state
from tests.stack import Stack, wait_until

MODEL = "exo/scripted"
TEXTS = ["The sea was calm.", "Birds came in winter.", "A", "The sea was calm."]
SLOW = json.dumps({"tokens": [], "pace": 1000})
"""A text whose vector is a long time coming."""


@pytest.fixture(scope="module")
def sdk(shared_stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
async def unblocked(shared_stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def embed(sdk: openai.OpenAI, texts: object = TEXTS, **fields: Any) -> list[list[float]]:
    answer = sdk.embeddings.create(model=MODEL, input=texts, **fields)  # pyright: ignore
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return [one.embedding for one in answer.data]


def post(client: httpx.Client, **fields: object) -> httpx.Response:
    return client.post("/v1/embeddings", json={"model": MODEL, "input": TEXTS, **fields})


def refusal(client: httpx.Client, **fields: object) -> dict[str, Any]:
    answer = post(client, **fields)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def test_a25_vectors_come_in_the_order_of_the_texts_and_have_a_length_of_one(sdk: openai.OpenAI) -> None:
    vectors = embed(sdk)
    assert len(vectors) == 4
    assert vectors[0] == vectors[3] == embed(sdk, TEXTS[0])[0]
    assert vectors[0] != vectors[1]
    assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-6) for vector in vectors)


def test_a25_base64_and_floats_are_the_same_numbers(client: httpx.Client, sdk: openai.OpenAI) -> None:
    by_default = embed(sdk)
    assert by_default == embed(sdk, encoding_format="float")
    coded = post(client, encoding_format="base64").json()["data"]
    decoded = [list(unpack("<64f", b64decode(one["embedding"]))) for one in coded]
    assert decoded == by_default
    assert post(client).json()["data"][0]["embedding"] == by_default[0]


async def test_a25_the_same_without_blocking(unblocked: openai.AsyncOpenAI, sdk: openai.OpenAI) -> None:
    answers = await asyncio.gather(*(unblocked.embeddings.create(model=MODEL, input=text) for text in TEXTS))
    assert [answer.data[0].embedding for answer in answers] == embed(sdk)


def test_the_answer_is_openais(client: httpx.Client) -> None:
    answer = post(client, user="anna").json()
    tokens = sum(map(len, TEXTS))
    assert answer.pop("usage") == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert [sorted(one) for one in answer.pop("data")] == [["embedding", "index", "object"]] * 4
    assert answer == {"object": "list", "model": MODEL}


def test_tokens_are_what_their_text_is(sdk: openai.OpenAI) -> None:
    tokens = [list(text.encode()) for text in TEXTS]
    assert embed(sdk, tokens) == embed(sdk)
    assert embed(sdk, tokens[0]) == embed(sdk, TEXTS[0])


def test_the_pooling_may_be_chosen(sdk: openai.OpenAI) -> None:
    last = {"extra_body": {"pooling": "last"}}
    assert embed(sdk, "ab", **last) == embed(sdk, "cb", **last)
    assert embed(sdk, "ab") != embed(sdk, "cb")
    assert embed(sdk, "ab", extra_body={"pooling": "mean"}) == embed(sdk, "ab")


def test_fewer_dimensions_are_the_beginning_at_a_length_of_one(sdk: openai.OpenAI) -> None:
    ((whole,), (short,)) = embed(sdk, "ab"), embed(sdk, "ab", dimensions=8)
    length = math.hypot(*whole[:8])
    assert short == pytest.approx([one / length for one in whole[:8]], rel=1e-6)


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"input": []}, "input", ""),
        ({"input": ""}, "input[0]", "not empty"),
        ({"input": ["a", ""]}, "input[1]", "not empty"),
        ({"input": ["a", []]}, "input[1]", "not empty"),
        ({"input": ["a", 5]}, "input[0]", ""),
        ({"input": {"a": 1}}, "input", ""),
        ({"input": None}, "input", ""),
        ({"input": [-1]}, "input[0]", ""),
        ({"input": ["a"] * 2049}, "input", "2049.* 2048"),
        ({"input": [[FIRST_PIECE + 10**6]]}, "input[0]", "there is no token"),
        ({"input": ["a", "b" * 8193]}, "input[1]", "8192 tokens.* 8193"),
        ({"encoding_format": "int8"}, "encoding_format", ""),
        ({"pooling": "cls"}, "pooling", ""),
        ({"dimensions": 0}, "dimensions", ""),
        ({"dimensions": 65}, "dimensions", "64.* 65"),
        ({"truncate": True}, "truncate", "not a parameter"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    client: httpx.Client, fields: dict[str, object], param: str, said: str
) -> None:
    error = refusal(client, **fields)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert re.search(said, error["message"]), error


def test_an_unknown_model_is_not_found_and_a_bad_body_is_refused_before(client: httpx.Client) -> None:
    answer = post(client, model="nowhere/nothing")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert refusal(client, model="nowhere/nothing", input=[])["param"] == "input"


def test_a5_a_client_that_goes_frees_the_slot(client: httpx.Client, shared_stack: Stack) -> None:
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=shared_stack.url, timeout=0.5) as leaving:
        post(leaving, input=[*TEXTS, SLOW])
    wait_until(lambda: not client.get("/state/generations").json(), "the request to end", 2)
    last = client.get("/state/ended").json()[-1]
    assert (last["finish_reason"], last["usage"]["prompt_tokens"]) == ("cancelled", sum(map(len, TEXTS)))


def test_a5_a_request_that_is_cancelled_by_somebody_ends_in_an_error(shared_stack: Stack) -> None:
    async def cancelled() -> httpx.Response:
        async with httpx.AsyncClient(base_url=shared_stack.url, timeout=30) as client:
            asking = asyncio.create_task(client.post("/v1/embeddings", json={"model": MODEL, "input": SLOW}))
            async with asyncio.timeout(10):
                while not (running := (await client.get("/state/generations")).json()):
                    pass
            await client.post(f"/v1/cancel/{next(iter(running))}")
            return await asking

    answer = asyncio.run(cancelled())
    assert (answer.status_code, answer.json()["error"]["code"]) == (499, "cancelled")


@pytest.mark.parametrize(("kind", "status"), [("error", 500), ("crash", 502)])
def test_a6_an_engine_that_fails_ends_the_request_with_an_error(stack: Stack, kind: str, status: int) -> None:
    text = json.dumps({"tokens": [], "fault": {"kind": kind}})
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        answer = post(client, input=["a", text])
        assert answer.status_code == status, answer.text
        assert post(client).status_code == 200


def test_a_model_that_is_not_loaded_is_loaded(stack: Stack) -> None:
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        for instance_id in state(stack)["instances"]:
            client.delete(f"/instance/{instance_id}", params={"wait": 10})
        assert post(client).status_code == 200


def test_generations_and_vectors_do_not_wait_for_each_other(client: httpx.Client, shared_stack: Stack) -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "one two"}]}
    with httpx.Client(base_url=shared_stack.url, timeout=0.5) as leaving, pytest.raises(httpx.ReadTimeout):
        post(leaving, input=SLOW)
    assert client.post("/v1/chat/completions", json=chat).status_code == 200


def test_the_log_says_what_ran_and_holds_no_vector_and_no_text(client: httpx.Client, shared_stack: Stack) -> None:
    text = f"nobody else says this, {time.time()}"
    assert post(client, input=text).status_code == 200
    wait_until(lambda: not client.get("/state/generations").json(), "the end", 5)
    queued, finished = logged_of(shared_stack, GenerationQueued)[-1], logged_of(shared_stack, GenerationFinished)[-1]
    assert queued.gives == "vectors"
    assert (finished.task_id, finished.finish_reason) == (queued.task_id, "stop")
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (len(text), 0)
    assert text not in "".join(one.model_dump_json() for one in (queued, finished))
    why = client.get(f"/log/why/{queued.task_id}").json()
    assert "vectors of exo/scripted" in json.dumps(why)


def test_as_many_texts_as_there_may_be(sdk: openai.OpenAI) -> None:
    texts = [f"text number {number}" for number in range(2048)]
    vectors = embed(sdk, texts)
    assert len({tuple(vector) for vector in vectors}) == 2048
    assert vectors[700] == embed(sdk, texts[700])[0]


async def test_nothing_of_it_stays_where_answers_are_kept_for_those_who_come_back(shared_stack: Stack) -> None:
    async with httpx.AsyncClient(base_url=shared_stack.url, timeout=30) as client:
        assert (await client.post("/v1/embeddings", json={"model": MODEL, "input": TEXTS})).status_code == 200
        async with asyncio.timeout(10):
            while (await client.get("/state/generations")).json():
                pass
        task_id = TaskId((await client.get("/state/ended")).json()[-1]["task_id"])
    bus = await connect(shared_stack.nats_url, Settings.model_fields["cluster"].default, "tester")
    assert await read_chunks(bus, task_id, 0) == []
    await bus.close()
