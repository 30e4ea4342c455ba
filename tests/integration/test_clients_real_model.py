"""Client libraries other than OpenAI's against a node with the embedded model, where what is said matters."""

from typing import Any, Literal

import anthropic
import openai
import pytest
from langchain_openai import ChatOpenAI
from litellm_calls import WITH_LITELLM, complete
from pydantic import BaseModel, Field

from exo.models.catalog import EMBEDDED
from tests.conftest import needs_mlx
from tests.stack import Stack

pytestmark = [pytest.mark.slow, needs_mlx, *WITH_LITELLM]
FRANCE = "What is the capital of France?"
PARIS = "Tell me about Paris as JSON."


class City(BaseModel):
    """What an answer is read into."""

    name: str = Field(max_length=20)
    continent: Literal["Europe", "Asia"]
    is_capital: bool


def langchain(stack: Stack, **fields: Any) -> ChatOpenAI:
    settings: dict[str, Any] = {"model": EMBEDDED, "api_key": "none", "max_retries": 0, "temperature": 0, **fields}
    return ChatOpenAI(base_url=f"{stack.url}/v1", **settings)


def by_litellm(stack: Stack, route: str, message: str, **fields: object) -> Any:
    base = stack.url if route == "anthropic" else f"{stack.url}/v1"
    messages = [{"role": "user", "content": message}]
    settings = {"api_base": base, "api_key": "none", "max_retries": 0, "temperature": 0, **fields}
    return complete(model=f"{route}/{EMBEDDED}", messages=messages, **settings)


@pytest.mark.parametrize("route", ["openai", "anthropic"])
def test_litellm_gets_an_answer(real_stack: Stack, route: str) -> None:
    assert "Paris" in by_litellm(real_stack, route, FRANCE, max_tokens=20).choices[0].message.content


def test_litellm_asks_for_no_limit_and_the_context_is_it(real_stack: Stack) -> None:
    answer = by_litellm(real_stack, "anthropic", FRANCE, stop=["."])
    assert answer.choices[0].finish_reason == "stop"


def test_litellm_reads_a_structured_answer(real_stack: Stack) -> None:
    answer = by_litellm(real_stack, "openai", PARIS, max_tokens=80, response_format=City)
    assert City.model_validate_json(answer.choices[0].message.content)


@pytest.mark.parametrize("by_responses", [False, True])
def test_langchain_gets_an_answer_and_reads_a_structured_one(real_stack: Stack, by_responses: bool) -> None:
    model = langchain(real_stack, use_responses_api=by_responses, max_tokens=80)
    assert "Paris" in model.invoke(FRANCE).text
    assert isinstance(model.with_structured_output(City).invoke(PARIS), City)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"output_config": {"effort": "high"}}, "output_config.effort"),
    ],
)
def test_a_refusal_about_thinking_names_anthropics_parameter(
    real_stack: Stack, fields: dict[str, Any], param: str
) -> None:
    messages: Any = [{"role": "user", "content": FRANCE}]
    with (
        anthropic.Anthropic(base_url=real_stack.url, api_key="none", max_retries=0) as client,
        pytest.raises(anthropic.BadRequestError, match=f"^Error code: 400 .*'message': '{param}: ") as refusal,
    ):
        client.messages.create(model=EMBEDDED, max_tokens=2000, messages=messages, **fields)
    assert "enable_thinking" not in str(refusal.value)


@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_about_thinking_names_the_parameter_of_responses(real_stack: Stack, stream: bool) -> None:
    with (
        openai.OpenAI(base_url=f"{real_stack.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError) as refusal,
    ):
        client.responses.create(model=EMBEDDED, input=FRANCE, reasoning={"effort": "high"}, stream=stream)
    assert (refusal.value.code, refusal.value.param) == ("unsupported_parameter", "reasoning.effort")
