"""Ollama's client against a node with the embedded model, where what is said matters."""

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from pydantic import BaseModel, ConfigDict, Field

from exo.models.catalog import EMBEDDED
from tests.conftest import needs_mlx
from tests.stack import Stack

pytestmark = [pytest.mark.slow, needs_mlx]
FRANCE = "What is the capital of France?"
STORY = "Tell me a story about a lighthouse."


class City(BaseModel):
    """What an answer is held to."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=20)
    inhabitants: int


@pytest.fixture
def sdk(real_stack: Stack) -> Iterator[ollama.Client]:
    with ollama.Client(host=f"{real_stack.url}/ollama") as one:
        yield one


def said(sdk: ollama.Client, question: str = STORY, **options: object) -> str:
    messages = [{"role": "user", "content": question}]
    return sdk.chat(EMBEDDED, messages, options={"num_predict": 16, **options}).message.content or ""


def test_the_model_answers(sdk: ollama.Client) -> None:
    assert "Paris" in said(sdk, FRANCE, temperature=0)
    answer = sdk.generate(EMBEDDED, FRANCE, options={"temperature": 0, "num_predict": 16})
    assert "Paris" in (answer.response or "")
    assert (answer.prompt_eval_duration or 0) > 0
    assert (answer.eval_duration or 0) > 0


def test_a23_a_seed_gives_the_same_text_and_none_another(sdk: ollama.Client) -> None:
    assert said(sdk, seed=7) == said(sdk, seed=7)
    assert said(sdk) != said(sdk)
    assert said(sdk, seed=-1) != said(sdk, seed=-1)


def test_the_answer_is_held_to_a_format(sdk: ollama.Client) -> None:
    options = {"temperature": 0, "num_predict": 60}
    held = sdk.generate(EMBEDDED, "Describe Paris as JSON.", format=City.model_json_schema(), options=options)
    assert City.model_validate_json(held.response or "")
    free = sdk.chat(EMBEDDED, [{"role": "user", "content": "An empty JSON object."}], format="json", options=options)
    assert (free.message.content or "").startswith("{")
    if free.done_reason == "stop":
        json.loads(free.message.content or "")


def test_a24_a_format_that_cannot_be_enforced_is_refused_by_name(sdk: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError) as refused:
        sdk.generate(EMBEDDED, FRANCE, format={"type": "object", "not": {"type": "string"}})
    assert (refused.value.status_code, refused.value.error.startswith("format: ")) == (400, True)


def test_a_raw_prompt_is_continued(sdk: ollama.Client) -> None:
    options = {"temperature": 0, "num_predict": 3, "repeat_penalty": 1}
    answer = sdk.generate(EMBEDDED, "The capital of France is", raw=True, options=options)
    assert (answer.response or "").startswith(" Paris")
    assert answer.prompt_eval_count == 5


def test_logprobs_are_those_of_the_text(sdk: ollama.Client) -> None:
    answer = sdk.chat(
        EMBEDDED,
        [{"role": "user", "content": FRANCE}],
        logprobs=True,
        top_logprobs=2,
        options={"temperature": 0, "num_predict": 5},
    )
    told: Any = answer.logprobs
    assert "".join(one.token for one in told) == answer.message.content
    assert all(len(one.top_logprobs) == 2 for one in told)


@pytest.mark.parametrize("think", [True, "high"])
def test_a_model_that_does_not_think_is_not_told_to(sdk: ollama.Client, think: Any) -> None:
    with pytest.raises(ollama.ResponseError) as refused:
        sdk.chat(EMBEDDED, [{"role": "user", "content": FRANCE}], think=think)
    assert (refused.value.status_code, "think" in refused.value.error) == (400, True)
    prompted = sdk.generate(EMBEDDED, FRANCE, think=False, options={"num_predict": 4})
    assert prompted.response


def test_tools_are_refused_where_the_model_has_no_place_for_them(sdk: ollama.Client) -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    with pytest.raises(ollama.ResponseError) as refused:
        sdk.chat(EMBEDDED, [{"role": "user", "content": FRANCE}], tools=[tool])
    assert (refused.value.status_code, "tools" in refused.value.error) == (400, True)


def test_a19_the_context_asked_for_bounds_the_prompt(sdk: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError) as refused:
        said(sdk, STORY, num_ctx=10)
    assert (refused.value.status_code, "10 tokens" in refused.value.error) == (400, True)
