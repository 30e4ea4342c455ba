"""`POST /bench/chat/completions`: a chat completion, and how fast it was."""

import time
from typing import Any

from litestar import Request, Response, post
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.generations import answering
from exo.api.http.json_response import json_response
from exo.api.known.asked import body_and_card
from exo.api.openai.chat import EXAMPLE
from exo.api.openai.chat_answers import ChatCompletion, completion
from exo.api.openai.requests import ChatCompletionRequest
from exo.domain.messages.chunks import EndPiece
from exo.domain.sampling import Timings
from exo.errors import Rejected


class GenerationStats(TypedDict):
    """How fast one answer was. Tokens a second are null where there was nothing to measure."""

    prompt_tps: float | None
    generation_tps: float | None
    prompt_tokens: int
    generation_tokens: int
    peak_memory_bytes: int
    timings: Timings


class MeasuredCompletion(ChatCompletion):
    """A chat completion, and how fast it was."""

    generation_stats: GenerationStats


@post(
    "/bench/chat/completions",
    status_code=200,
    summary="Answer a conversation, and say how fast",
    tags=["Cluster"],
    operation_class=operation(body=ChatCompletionRequest, example=EXAMPLE, answer=MeasuredCompletion),
)
async def bench_chat_completions(request: Request[Any, Any, Any], api: Api) -> Response[bytes]:
    """One whole answer, as `/v1/chat/completions` gives it, with `generation_stats`."""
    body, card = await body_and_card(api, request, ChatCompletionRequest)
    for name, unwanted in (("stream", body.stream), ("n", (body.n or 1) > 1), ("background", body.background)):
        if unwanted:
            raise Rejected(f"{name}: one whole answer is measured", code="unsupported_parameter", param=name)
    created = int(time.time())
    choices = await answering.start(api, card.model_id, [body.to_domain()], request.receive)
    answers = await answering.whole(api, choices)
    whole = completion(choices.task_id, created, card.model_id, answers, bool(body.logprobs))
    answer: MeasuredCompletion = {**whole, "generation_stats": stats_of(answers[0][1])}
    return json_response(answer)


def stats_of(end: EndPiece) -> GenerationStats:
    """The figures of a generation that is over. The first token belongs to prefill; cached tokens count for nothing."""
    usage, timings = end.usage, end.timings
    return {
        "prompt_tps": _rate(usage.prompt_tokens - usage.cached_tokens, timings.prefill),
        "generation_tps": _rate(usage.completion_tokens - 1, timings.decode),
        "prompt_tokens": usage.prompt_tokens,
        "generation_tokens": usage.completion_tokens,
        "peak_memory_bytes": end.peak_memory_bytes,
        "timings": timings,
    }


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens > 0 and seconds > 0 else None
