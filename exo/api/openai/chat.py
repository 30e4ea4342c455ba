"""`POST /v1/chat/completions`."""

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
from exo.api.openai.chat_answers import ID_PREFIX, ChatCompletion, ChunkWriter, completion
from exo.api.openai.choice_requests import each_choice
from exo.api.openai.requests import ChatCompletionRequest
from exo.domain.ids import TaskId

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 50}


@post(
    "/v1/chat/completions",
    status_code=200,
    summary="Answer a conversation",
    tags=["OpenAI"],
    operation_class=operation(
        body=ChatCompletionRequest, example=EXAMPLE, answer=ChatCompletion, media_types=(JSON, EVENTS)
    ),
)
async def chat_completions(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """The answer of a model, whole or as a stream. See docs/api.md for each parameter."""
    body, card = await body_and_card(api, request, ChatCompletionRequest)
    created, count = int(time.time()), body.n or 1
    requests = each_choice(body.to_domain(), count)
    if body.stream:

        def writer(task_id: TaskId, created: int) -> ChunkWriter:
            return ChunkWriter(task_id, created, card.model_id, count, body.wants_usage)

        asked = AskedStream(card.model_id, requests, ID_PREFIX, writer, created, bool(body.background))
        return await stream(api, request, asked)
    choices = await answering.start(api, card.model_id, requests, request.receive)
    answers = await answering.whole(api, choices)
    whole = completion(choices.task_id, created, card.model_id, answers, bool(body.logprobs))
    return json_response(whole)
