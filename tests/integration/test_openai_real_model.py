"""OpenAI's client library against a node with the embedded model, where what is said matters."""

import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import openai
import pytest
from pydantic import BaseModel, Field

from exo.domain.embedding import Pooling
from exo.models.catalog import EMBEDDED
from tests.conftest import needs_mlx
from tests.stack import Stack

pytestmark = [pytest.mark.slow, needs_mlx]
FRANCE = "What is the capital of France?"
STORY = "Tell me a story about a lighthouse."


@pytest.fixture
def sdk(real_stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{real_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
async def unblocked(real_stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{real_stack.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def asked(question: str = STORY, **fields: object) -> Any:
    return {"model": EMBEDDED, "messages": [{"role": "user", "content": question}], "max_tokens": 16, **fields}


def texts(sdk: openai.OpenAI, **fields: object) -> list[str | None]:
    return [choice.message.content for choice in sdk.chat.completions.create(**asked(**fields)).choices]


def test_a23_a_seed_gives_the_same_text_whatever_others_ask_for_and_none_gives_another(sdk: openai.OpenAI) -> None:
    alone = texts(sdk, seed=7)
    assert texts(sdk) != texts(sdk)
    others = sdk.chat.completions.create(**asked(stream=True, max_tokens=60))
    assert next(iter(others))
    assert texts(sdk, seed=7) == alone
    others.close()


def test_a21_a_seed_gives_each_choice_its_own_text_and_all_of_them_again(sdk: openai.OpenAI) -> None:
    three = texts(sdk, seed=7, n=3)
    assert len(set(three)) == 3
    assert texts(sdk, seed=7, n=3) == three
    assert three[:1] == texts(sdk, seed=7)


def test_a21_the_prompt_of_several_choices_counts_once(sdk: openai.OpenAI) -> None:
    question = f"{STORY} It begins in the year 1901. " + "The sea was calm. " * 60
    alone = sdk.chat.completions.create(**asked(question + "Begin.", max_tokens=4)).usage
    several = sdk.chat.completions.create(**asked(question + "Again.", max_tokens=4, n=3, temperature=0)).usage
    assert alone is not None
    assert several is not None
    assert several.prompt_tokens == alone.prompt_tokens
    assert several.completion_tokens == 12


async def test_a21_streamed_choices_are_those_of_an_answer_in_one(unblocked: openai.AsyncOpenAI) -> None:
    whole = await unblocked.chat.completions.create(**asked(seed=3, n=2))
    said = ["", ""]
    async for chunk in await unblocked.chat.completions.create(**asked(seed=3, n=2), stream=True):
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
    assert said == [choice.message.content for choice in whole.choices]


def test_a30_a_prompt_that_comes_again_is_not_computed_again(sdk: openai.OpenAI) -> None:
    again = asked("How many legs has a spider, and how many has an ant?", max_tokens=4, temperature=0)
    first, second = (sdk.chat.completions.create(**again).usage for _ in range(2))
    assert first is not None
    assert second is not None
    assert second.prompt_tokens_details is not None
    assert 0 < (second.prompt_tokens_details.cached_tokens or 0) < second.prompt_tokens
    assert second.prompt_tokens == first.prompt_tokens


class City(BaseModel):
    """What the answer is read into."""

    name: str = Field(max_length=20)
    continent: Literal["Europe", "Asia"]
    is_capital: bool


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_is_parsed_into_a_model_of_pydantic(sdk: openai.OpenAI, stream: bool) -> None:
    fields = asked("Tell me about Paris as JSON.", max_tokens=80, temperature=0, response_format=City)
    if stream:
        with sdk.chat.completions.stream(**fields) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = sdk.chat.completions.parse(**fields).choices[0]
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, City)


@pytest.mark.parametrize(("name", "value"), [("reasoning_effort", "high"), ("enable_thinking", True)])
def test_a_model_that_does_not_think_refuses_to_be_told_how(sdk: openai.OpenAI, name: str, value: object) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        sdk.chat.completions.create(**asked(extra_body={name: value}))
    assert (refusal.value.code, refusal.value.param) == ("unsupported_parameter", name)


@pytest.mark.parametrize(("name", "value"), [("reasoning_effort", "none"), ("enable_thinking", False)])
def test_a_model_that_does_not_think_can_be_told_not_to(sdk: openai.OpenAI, name: str, value: object) -> None:
    assert sdk.chat.completions.create(**asked(extra_body={name: value}, max_tokens=1)).choices


def test_a_text_is_continued_without_a_chat_template(sdk: openai.OpenAI) -> None:
    whole = sdk.completions.create(
        model=EMBEDDED, prompt="The capital of France is", max_tokens=4, temperature=0, logprobs=2, echo=False
    )
    (choice,) = whole.choices
    assert choice.text.startswith(" Paris")
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == 5
    told = choice.logprobs
    assert told is not None
    assert "".join(told.tokens or []) == choice.text
    assert told.text_offset == [len("".join((told.tokens or [])[:place])) for place in range(4)]
    for token, logprob, top in zip(told.tokens or [], told.token_logprobs or [], told.top_logprobs or [], strict=True):
        assert top[token] == logprob == max(top.values())
        assert len(top) == 2


def test_tokens_are_continued_as_the_text_that_they_stand_for(sdk: openai.OpenAI) -> None:
    fields: Any = {"model": EMBEDDED, "max_tokens": 4, "temperature": 0, "echo": True}
    of_text = sdk.completions.create(prompt="The capital of", **fields).choices[0].text
    of_tokens = sdk.completions.create(prompt=[504, 3575, 282], **fields).choices[0].text
    assert of_text == of_tokens
    assert of_text.startswith("The capital of ")


def test_a_continued_text_is_held_to_a_format(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(
        model=EMBEDDED, prompt="Two numbers: ", max_tokens=12, extra_body={"guided_regex": "[0-9]{2}, [0-9]{2}"}
    )
    (choice,) = answer.choices
    left, right = choice.text.split(", ")
    assert (len(left), len(right), choice.finish_reason) == (2, 2, "stop")


@pytest.mark.parametrize("pooling", ["mean", "last"])
async def test_a25_vectors_are_the_hidden_states_of_the_last_layer_whatever_runs_beside(
    unblocked: openai.AsyncOpenAI, embedded_model: Path, pooling: Pooling
) -> None:
    texts = ["The sea was calm.", "Paris", "The keeper of the lighthouse wrote down every ship that passed. " * 40]
    story = await unblocked.chat.completions.create(**asked(stream=True, max_tokens=60))
    answer = await unblocked.embeddings.create(model=EMBEDDED, input=texts, extra_body={"pooling": pooling})
    assert len([chunk async for chunk in story]) > 30
    tokens = [hidden_states(embedded_model, text) for text in texts]
    assert answer.usage.prompt_tokens == sum(map(len, tokens))
    for one, states in zip(answer.data, tokens, strict=True):
        row = states.mean(axis=0) if pooling == "mean" else states[-1]
        np.testing.assert_allclose(one.embedding, row / np.linalg.norm(row), atol=1e-4)


@functools.cache
def hidden_states(folder: Path, text: str) -> Any:
    """Of each token of a text, by mlx-lm alone."""
    import mlx.core as mx

    model, tokenizer = reference(folder)
    return np.array(model.model(mx.array([tokenizer.encode_text(text)]))[0])


@functools.cache
def reference(folder: Path) -> Any:
    from mlx_lm.utils import load_model

    from exo.runner.tokenizer import HuggingFaceTokenizer

    return load_model(folder)[0], HuggingFaceTokenizer(folder)


def test_vectors_of_what_means_the_same_are_closer(sdk: openai.OpenAI) -> None:
    texts = ["The cat sleeps on the sofa.", "A cat is sleeping on a couch.", "Interest rates rose by two percent."]
    cat, same, other = (np.array(one.embedding) for one in sdk.embeddings.create(model=EMBEDDED, input=texts).data)
    assert cat @ same > cat @ other


def test_a19_a_text_over_the_context_is_refused_with_both_numbers(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"input\[1\].* 8192 tokens.* 9000") as refused:
        sdk.embeddings.create(model=EMBEDDED, input=[[5], [6] * 9000])
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input[1]")


def test_fewer_dimensions_of_a_model_that_does_not_say_so_are_refused(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.embeddings.create(model=EMBEDDED, input="a", dimensions=64)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "dimensions")
