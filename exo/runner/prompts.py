"""A request's prompt as tokens, and how its answer is read: of a conversation, or of what is continued as it stands."""

from collections.abc import Sequence

from exo.domain.messages.requests import EmbeddingRequest, GenerationRequest
from exo.errors import Rejected
from exo.models.output_format import OutputFormat
from exo.runner.chat import chat_messages, template_arguments
from exo.runner.engines.base import Tokenizer
from exo.runner.output.opening import open_pipeline, open_raw_pipeline
from exo.runner.output.pipeline import OutputPipeline
from exo.runner.thinking import EFFORT, THINKING


def encode(request: GenerationRequest, tokenizer: Tokenizer) -> list[int]:
    """The prompt's tokens. Raises Rejected where the chat template refuses, or the model has no such token."""
    match request.prompt:
        case None:
            return _of_chat(request, tokenizer)
        case str() as text:
            return tokenizer.encode_text(text)
        case tokens:
            return _known(tokens, tokenizer, "prompt")


def _of_chat(request: GenerationRequest, tokenizer: Tokenizer) -> list[int]:
    try:
        return tokenizer.encode_chat(chat_messages(request), template_arguments(request))
    except Rejected as refusal:
        # A template has one switch, and there are two ways to ask for it.
        if refusal.param == THINKING and request.reasoning_effort == "none":
            raise Rejected(refusal.reason, code=refusal.code, param=EFFORT) from refusal
        raise


def encode_inputs(request: EmbeddingRequest, tokenizer: Tokenizer) -> list[list[int]]:
    """The tokens of each text. Raises Rejected where the model has no such token."""
    return [
        tokenizer.encode_text(one) if isinstance(one, str) else _known(one, tokenizer, f"input[{index}]")
        for index, one in enumerate(request.inputs)
    ]


def _known(tokens: Sequence[int], tokenizer: Tokenizer, param: str) -> list[int]:
    size = tokenizer.vocabulary_size
    if tokens and max(tokens) >= size:
        reason = f"there is no token {max(tokens)}: this model's are numbered from 0 to {size - 1}"
        raise Rejected(reason, param=param)
    return list(tokens)


def form_of(request: GenerationRequest, prompt: Sequence[int], tokenizer: Tokenizer) -> OutputFormat:
    """How the answer is written: after a prompt as it stands it is text alone."""
    return OutputFormat() if request.prompt is not None else tokenizer.output_format(prompt)


def open_output(request: GenerationRequest, prompt: Sequence[int], tokenizer: Tokenizer) -> OutputPipeline:
    """What reads the answer. Raises Rejected where a tool's schema is no JSON object."""
    if request.prompt is not None:
        return open_raw_pipeline(prompt, tokenizer, request)
    return open_pipeline(tokenizer.output_format(prompt), tokenizer, request)


def echoed(request: GenerationRequest, prompt: Sequence[int], tokenizer: Tokenizer) -> str:
    """The prompt's text, where the answer is to begin with it."""
    if not request.echo:
        return ""
    return request.prompt if isinstance(request.prompt, str) else tokenizer.decode(prompt)
