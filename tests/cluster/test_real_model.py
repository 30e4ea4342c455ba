"""A node with a real model: the embedded one, on MLX."""

import json
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel

from exo.models.catalog import EMBEDDED
from tests.cluster.chats import Chat
from tests.cluster.node_contract import NodeContract
from tests.conftest import needs_mlx
from tests.stack import Stack, wait_until

pytestmark = [pytest.mark.slow, needs_mlx]
QUESTION = "What is the capital of France?"


def ask(node: Stack, question: str = QUESTION, **more: object) -> Chat:
    """Ask with temperature 0."""
    return Chat(node, question, model=EMBEDDED, temperature=0, **more)


def test_it_knows_the_capital_of_france(real_stack: Stack) -> None:
    answer = ask(real_stack, max_tokens=20).wait(60)
    assert answer.outcome == "complete"
    assert "Paris" in answer.text
    assert len(answer.pieces) > 3
    whole = ask(real_stack, max_tokens=20, stream=False).wait(60)
    assert whole.text == answer.text


class TestMlxNode(NodeContract):
    """All of the contract."""

    model = EMBEDDED

    @pytest.fixture
    def node(self, real_stack: Stack) -> Stack:
        return real_stack


def test_a_prompt_that_takes_long_to_read_holds_nobody_up(real_stack: Stack) -> None:
    huge = ask(real_stack, "The sea is deep and wide. " * 120_000, max_tokens=5, stream=False)
    wait_until(lambda: generations(real_stack) == 1, "the huge prompt is with the runner")
    assert "Paris" in ask(real_stack, max_tokens=10).wait(60).text
    assert huge.ended_at is None
    assert (huge.wait(60).outcome, huge.code) == ("error", "context_length_exceeded")


def generations(node: Stack) -> int:
    """How many were given to an instance and are not over."""
    state = httpx.get(f"http://127.0.0.1:{node.api_port}/state").json()
    return sum(one["instance_id"] is not None for one in state["generations"].values())


@pytest.fixture(scope="module")
def sdk(real_stack: Stack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{real_stack.url}/v1", api_key="none", max_retries=0)


def body(**fields: object) -> dict[str, Any]:
    return {"model": EMBEDDED, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 60, **fields}


CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_answer_by_a_schema_is_valid(sdk: openai.OpenAI, seed: int) -> None:
    schema = {"name": "city", "strict": True, "schema": CITY}
    wanted = body(seed=seed, response_format={"type": "json_schema", "json_schema": schema})
    answer = sdk.chat.completions.create(**wanted)
    assert answer.choices[0].finish_reason == "stop"
    assert set(json.loads(answer.choices[0].message.content or "")) == {"city", "capital"}


def test_logprobs_come_with_the_text_that_they_are_of(sdk: openai.OpenAI) -> None:
    asked = body(temperature=0, logprobs=True, top_logprobs=2, max_tokens=10)
    whole = sdk.chat.completions.create(**asked).choices[0]
    assert whole.logprobs is not None
    told = whole.logprobs.content or []
    assert b"".join(bytes(one.bytes or ()) for one in told).decode() == whole.message.content
    assert all(one.logprob <= 0 and len(one.top_logprobs) == 2 for one in told)
    streamed: list[object] = []
    for chunk in sdk.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            if choice.logprobs is not None:
                assert choice.delta.content
                streamed += choice.logprobs.content or []
    assert streamed == told


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"guided_regex": "("}, "invalid_response_format", "guided_regex"),
        ({"structured_outputs": {"json": {"type": "x"}}}, "invalid_response_format", "structured_outputs.json"),
        ({"logit_bias": {"49152": 1}}, "invalid_request", "logit_bias"),
    ],
)
def test_what_the_model_cannot_do_is_a_400_that_names_the_parameter(
    sdk: openai.OpenAI, fields: dict[str, object], code: str, param: str
) -> None:
    asked = body()
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refusal:
            sdk.chat.completions.create(**asked, stream=stream, extra_body=fields)
        assert (refusal.value.code, refusal.value.param) == (code, param)
    assert "Paris" in (sdk.chat.completions.create(**body(temperature=0)).choices[0].message.content or "")


class Capital(BaseModel):
    """What an answer is parsed into."""

    country: str
    capital: Literal["Paris", "Rome", "Madrid"]


def test_a24_a_response_is_parsed_and_the_conversation_goes_on(real_stack: Stack) -> None:
    with openai.OpenAI(base_url=f"{real_stack.url}/v1", api_key="none") as client:
        asked = f"{QUESTION} Answer as JSON."
        first = client.responses.parse(
            model=EMBEDDED, input=asked, temperature=0, max_output_tokens=60, text_format=Capital
        )
        assert first.output_parsed is not None
        assert first.output_parsed.capital == "Paris"
        second = client.responses.create(
            model=EMBEDDED,
            input="Say it again.",
            previous_response_id=first.id,
            temperature=0,
            max_output_tokens=20,
            include=["message.output_text.logprobs"],
            top_logprobs=2,
        )
        assert "Paris" in second.output_text
        part = second.output[0].content[0]  # pyright: ignore
        assert "".join(one.token for one in part.logprobs) == second.output_text  # pyright: ignore
        assert {len(one.top_logprobs) for one in part.logprobs} == {2}  # pyright: ignore


def test_formats_that_never_compile_harm_no_other_request(real_stack: Stack) -> None:
    """Their automata have more states than there is memory."""
    both = " & ".join(f"/([a-z]{{{length}}})*/" for length in (101, 103, 107, 109))
    endless = [f"start: A\nA: /(.|\\n)*/ & {both}\n// {number}" for number in range(2)]
    refused = [ask(real_stack, structured_outputs={"grammar": grammar}, max_tokens=2) for grammar in endless]
    for chat in refused:
        chat.wait(60)
        assert (chat.outcome, chat.code) == ("error", "invalid_response_format")
    answer = ask(real_stack, structured_outputs={"choice": ["Paris", "Rome"]}, max_tokens=9, stream=False).wait(60)
    assert answer.text in ("Paris", "Rome")
