"""`POST /v1/chat/completions`."""

import time
from collections.abc import AsyncGenerator
from typing import Any

from litestar import Request, Response, post
from litestar.response import Stream

from exo.api import sse
from exo.api.bodies import with_body
from exo.api.context import Api
from exo.api.errors import failure
from exo.api.generation import Generation, Item
from exo.api.models_known import find_model
from exo.api.openai.answer import whole_answer
from exo.api.openai.requests import ChatCompletionRequest
from exo.api.openai.responses import ChunkWriter, completion
from exo.domain.messages.chunks import EndPiece

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 50}
ANSWERED = "the answer is not wanted any more"


@post(
    "/v1/chat/completions",
    status_code=200,
    summary="Answer a conversation",
    tags=["OpenAI"],
    operation_class=with_body(EXAMPLE),
)
async def chat_completions(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """The answer of a model, whole or as a stream. See docs/api.md for each parameter."""
    body = ChatCompletionRequest.model_validate_json(await request.body())
    card = find_model(api.state, body.model)
    api.check_room()
    generation = api.generations.open(card.model_id)
    api.generations.leave_on_disconnect(generation, request.receive)
    created = int(time.time())
    try:
        await api.generations.start(generation, body.to_domain())
        if not body.stream:
            answer, end = await whole_answer(generation)
            api.generations.leave(generation, ANSWERED)
            return Response(
                completion(generation.task_id, created, card.model_id, answer, end, bool(body.logprobs)),
                media_type="application/json",
            )
        first = await _beginning(generation)
    except BaseException:
        api.generations.leave(generation, ANSWERED)
        raise
    writer = ChunkWriter(generation.task_id, created, card.model_id, body.wants_usage)
    return sse.event_stream(_frames(api, generation, writer, first))


async def _beginning(generation: Generation) -> list[Item]:
    """What the stream begins with: text, its end, or a sign of life. Until then an error has a status of its own."""
    items = await generation.items()
    if isinstance(items[0], EndPiece) and (problem := failure(items[0])):
        raise problem
    return items


async def _frames(api: Api, generation: Generation, writer: ChunkWriter, first: list[Item]) -> AsyncGenerator[bytes]:
    items = first
    try:
        while True:
            yield writer.frames(items)
            if isinstance(items[-1], EndPiece):
                return
            items = await generation.items()
    finally:
        api.generations.leave(generation, ANSWERED)
