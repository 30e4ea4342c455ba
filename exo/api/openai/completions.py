"""`POST /v1/completions`."""

import time
from typing import Any

from litestar import Request, Response, post
from litestar.response import Stream

from exo.api.bodies.openapi import EVENTS, JSON, operation
from exo.api.context import Api
from exo.api.generations import answering
from exo.api.generations.resuming import AskedStream, stream
from exo.api.http.json_response import json_response
from exo.api.known.asked import body_and_card
from exo.api.openai.completion_answers import ID_PREFIX, CompletionWriter, TextCompletion, completion
from exo.api.openai.completion_requests import CompletionRequest
from exo.domain.ids import TaskId

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "prompt": "The capital of France is", "max_tokens": 5}

NAMES = {"messages": "prompt"}
"""Of parameters, as in `exo.api.bodies.param_names`."""


@post(
    "/v1/completions",
    status_code=200,
    summary="Continue a text",
    tags=["OpenAI"],
    operation_class=operation(
        body=CompletionRequest, example=EXAMPLE, answer=TextCompletion, media_types=(JSON, EVENTS)
    ),
)
async def completions(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """What a model continues a prompt with, as it stands, without its chat template. See docs/api.md."""
    body, card = await body_and_card(api, request, CompletionRequest)
    created, payloads, with_logprobs = int(time.time()), body.to_domain(), body.logprobs is not None
    if body.stream:

        def writer(task_id: TaskId, created: int) -> CompletionWriter:
            return CompletionWriter(
                task_id, created, card.model_id, len(payloads), body.count, with_logprobs, body.wants_usage
            )

        asked = AskedStream(card.model_id, payloads, ID_PREFIX, writer, created, names=NAMES)
        return await stream(api, request, asked)
    choices = await answering.start(api, card.model_id, payloads, request.receive, NAMES)
    answers = await answering.whole(api, choices)
    whole = completion(choices.task_id, created, card.model_id, answers, body.count, with_logprobs)
    return json_response(whole)
