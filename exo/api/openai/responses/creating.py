"""`POST /v1/responses`."""

import time
from typing import Any

from litestar import Request, Response, post
from litestar.response import Stream

from exo.api.bodies.openapi import EVENTS, JSON, operation
from exo.api.context import Api
from exo.api.generations import answering
from exo.api.generations.choices import Choices
from exo.api.generations.resuming import AskedStream, stream
from exo.api.http.access import payer
from exo.api.http.json_response import json_response
from exo.api.known.asked import body_and_card
from exo.api.openai.responses.bodies import response_of
from exo.api.openai.responses.conversation import messages_before
from exo.api.openai.responses.events import ResponseWriter
from exo.api.openai.responses.ids import RESPONSE_PREFIX
from exo.api.openai.responses.output import Output
from exo.api.openai.responses.progress import Progress, ended
from exo.api.openai.responses.records import ResponseRecord, keep
from exo.api.openai.responses.requests import ResponseRequest
from exo.api.openai.responses.shapes import ResponseBody
from exo.domain.ids import TaskId

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "input": "Hello!", "max_output_tokens": 50}
NAMES = {
    "messages": "input",
    "enable_thinking": "reasoning.effort",
    "reasoning_effort": "reasoning.effort",
    ".function.parameters": ".parameters",
}
"""Of parameters, as in `exo.api.bodies.param_names`."""


@post(
    "/v1/responses",
    status_code=200,
    summary="Answer with a response",
    tags=["OpenAI"],
    operation_class=operation(body=ResponseRequest, example=EXAMPLE, answer=ResponseBody, media_types=(JSON, EVENTS)),
)
async def create_response(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """The answer of a model as items: whole, as a stream, or in the background. See docs/api.md for each parameter."""
    body, card = await body_and_card(api, request, ResponseRequest)
    raw = await request.body()
    payload = body.to_domain(await messages_before(api, body.previous_response_id))
    now = int(time.time())

    def record(task_id: TaskId, created: int = now) -> ResponseRecord:
        return ResponseRecord(task_id, created, card.model_id, body, payer())

    async def stored(task_id: TaskId) -> None:
        if body.is_stored:
            await keep(api.bus, record(task_id), raw)

    in_background = bool(body.background)
    if body.stream:

        def writer(task_id: TaskId, created: int) -> ResponseWriter:
            return ResponseWriter(record(task_id, created))

        asked = AskedStream(card.model_id, [payload], RESPONSE_PREFIX, writer, now, in_background, NAMES, beside=stored)
        return await stream(api, request, asked)
    choices = await answering.start(
        api, card.model_id, [payload], request.receive, NAMES, in_background=in_background, beside=stored
    )
    if in_background:
        await answering.accepted(api, choices)
        progress = Progress("queued")
    else:
        progress = await _whole(api, choices)
    return json_response(response_of(record(choices.task_id), progress))


async def _whole(api: Api, choices: Choices) -> Progress:
    ((answer, end),) = await answering.whole(api, choices)
    output = Output(choices.task_id)
    for piece in answer.pieces:
        output.add(piece)
    return ended(end, output)
