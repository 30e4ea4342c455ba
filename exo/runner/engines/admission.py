"""Whether a request can be taken at all; the same for every engine."""

from exo.domain.embedding import EmbeddingParams
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected

UNLIMITED_RESERVE = 2048
"""Tokens of output that memory is reserved for where a request sets no limit. To reserve the whole context would
refuse most of what fits; an answer of more than this is rare."""
MEMORY_PATIENCE = 120.0
"""Seconds that a request waits for memory before it fails."""
MEMORY_PAUSE = 0.05
"""Seconds between two looks at the memory while nothing else is to do."""


def context_limit(params: SamplingParams | EmbeddingParams, model_context: int) -> int:
    """Most tokens of prompt and answer together, or of a text that is to become a vector: the model's context, or less
    where a request wants that."""
    return min(params.context or model_context, model_context)


def limit_asked_for(params: SamplingParams, prompt_tokens: int, context: int) -> int | None:
    """The tokens of output that a request allows itself; None: all that the context has room for."""
    asked = params.max_tokens
    if params.stops_at_context and asked is not None and prompt_tokens + asked > context:
        return None
    return asked


def completion_limit(prompt_tokens: int, max_tokens: int | None, context: int) -> int:
    """How many tokens may be generated. Raises Rejected where the prompt and what is asked for are over the context."""
    if prompt_tokens == 0:
        raise Rejected("the prompt is empty", code="empty_prompt", param="messages")
    asked = prompt_tokens + (max_tokens or 1)
    if asked > context:
        # Client libraries know the error by these words, where they do not look at its code.
        too_long = "the prompt is too long: " if prompt_tokens >= context else ""
        raise Rejected(
            f"{too_long}this model's maximum context length is {context} tokens, but {asked} were asked for "
            f"({prompt_tokens} in the prompt, {max_tokens or 1} for the completion)",
            code="context_length_exceeded",
            param="messages",
        )
    return max_tokens or context - prompt_tokens


def check_fitting(prompt_tokens: int, max_tokens: int | None, fitting: int) -> None:
    """Raises Rejected where a request needs more tokens of keys and values than memory holds of it alone."""
    asked = prompt_tokens + (max_tokens or 1)
    if asked > fitting:
        raise Rejected(
            f"the request needs {asked} tokens of keys and values ({prompt_tokens} in the prompt, "
            f"{max_tokens or 1} for the completion), but this machine's memory holds {fitting}; ask for fewer",
            code="context_length_exceeded",
            param="messages",
        )


def reserved_tokens(prompt_tokens: int, max_tokens: int | None, limit: int) -> int:
    """Tokens whose keys and values a request is taken to need, prompt included."""
    return prompt_tokens + (limit if max_tokens is not None else min(limit, UNLIMITED_RESERVE))


def check_biases(params: SamplingParams, vocabulary_size: int) -> None:
    """Raises Rejected where a bias is for a token that the model does not have."""
    for token, _ in params.logit_bias:
        if token >= vocabulary_size:
            raise Rejected(
                f"there is no token {token}: this model's are numbered from 0 to {vocabulary_size - 1}",
                param="logit_bias",
            )
