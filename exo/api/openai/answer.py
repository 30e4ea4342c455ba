"""Parts of an answer with OpenAI's names, the same in each endpoint that has them."""

from collections.abc import Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from exo.api.generations.answer import Answer
from exo.domain.logprobs import TokenLogprobs
from exo.domain.sampling import Usage


class CalledFunction(TypedDict):
    """What is called, and with what, as a JSON object in a text."""

    name: str
    arguments: str


class Call(TypedDict):
    """A call that the client is asked to make."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AnswerMessage(TypedDict):
    """What the model said. Its content is null where there are calls and no text."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[Call]]


class AnswerLogprobs(TypedDict):
    """What is told of the answer's tokens."""

    content: Sequence[TokenLogprobs]
    refusal: None


class PromptDetails(TypedDict):
    """Of the prompt's tokens, those that were not computed anew."""

    cached_tokens: int


class CompletionDetails(TypedDict):
    """Of the answer's tokens, those that gave reasoning."""

    reasoning_tokens: int


class UsageFields(TypedDict):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


def message_of(answer: Answer) -> AnswerMessage:
    """The message."""
    text, reasoning, calls = answer.text, answer.reasoning, answer.calls
    message: AnswerMessage = {"role": "assistant", "content": text if text or not calls else None}
    if reasoning:
        message["reasoning_content"] = message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


def reasoning_of(text: str) -> dict[str, object]:
    """Under both names: DeepSeek's, which most clients read, and the one that vLLM and OpenRouter have."""
    return {"reasoning_content": text, "reasoning": text}


def logprobs_of(logprobs: Sequence[TokenLogprobs]) -> AnswerLogprobs:
    """What is told of the answer's tokens. A TokenLogprobs has OpenAI's names already."""
    return {"content": logprobs, "refusal": None}


def usage_of(usage: Usage) -> UsageFields:
    """Tokens."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
