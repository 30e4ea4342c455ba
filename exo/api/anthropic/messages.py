"""`POST /v1/messages`."""

from typing import Any

from litestar import Request, Response, post
from litestar.response import Stream

from exo.api.anthropic.answers import MessageOut, message
from exo.api.anthropic.events import EventWriter
from exo.api.anthropic.requests import MessagesRequest
from exo.api.bodies.openapi import EVENTS, JSON, operation
from exo.api.context import Api
from exo.api.generations import answering
from exo.api.http.json_response import json_response
from exo.api.http.request_ids import HEADER
from exo.api.known.asked import body_and_card

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello!"}]}
NAMES = {
    "enable_thinking": "thinking",
    "reasoning_effort": "output_config.effort",
    ".function.parameters": ".input_schema",
}
"""Of parameters, as in `exo.api.bodies.param_names`."""


@post(
    "/v1/messages",
    status_code=200,
    summary="Answer a conversation",
    tags=["Anthropic"],
    operation_class=operation(body=MessagesRequest, example=EXAMPLE, answer=MessageOut, media_types=(JSON, EVENTS)),
)
async def create_message(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """The answer of a model, whole or as a stream. See docs/api.md for each parameter."""
    body, card = await body_and_card(api, request, MessagesRequest)
    choices = await answering.start(api, card.model_id, [body.to_generation()], request.receive, NAMES)
    if body.stream:
        request_id = request.headers.get(HEADER, "")
        writer = EventWriter(
            choices.task_id,
            card.model_id,
            request_id,
            max_tokens=body.max_tokens,
            shows_thinking=body.shows_thinking,
        )
        return await answering.streamed(api, choices, writer.frames)
    ((answer, end),) = await answering.whole(api, choices)
    whole = message(choices.task_id, card.model_id, answer, end, body.max_tokens, body.shows_thinking)
    return json_response(whole)
