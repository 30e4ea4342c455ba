"""Parts of an answer with OpenAI's names, the same in each endpoint that has them."""

from collections.abc import Sequence

from exo.api.answer import Answer
from exo.domain.logprobs import TokenLogprobs
from exo.domain.sampling import Usage


def message_of(answer: Answer) -> dict[str, object]:
    """The message. Its content is null where there are calls and no text."""
    text, reasoning, calls = answer.text, answer.reasoning, answer.calls
    message: dict[str, object] = {"role": "assistant", "content": text if text or not calls else None}
    if reasoning:
        message |= reasoning_of(reasoning)
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


def reasoning_of(text: str) -> dict[str, object]:
    """Under both names: DeepSeek's, which most clients read, and the one that vLLM and OpenRouter have."""
    return {"reasoning_content": text, "reasoning": text}


def logprobs_of(logprobs: Sequence[TokenLogprobs]) -> dict[str, object]:
    """What is told of the answer's tokens. A TokenLogprobs has OpenAI's names already."""
    return {"content": logprobs, "refusal": None}


def usage_of(usage: Usage) -> dict[str, object]:
    """Tokens."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
