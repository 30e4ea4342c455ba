"""From a body to its answer, for chats and for prompts; or to a model that is loaded or unloaded, without one."""

import time
from typing import Any

from litestar import Request, Response
from litestar.response import Stream

from exo.api.context import Api
from exo.api.generations import answering
from exo.api.http.json_response import written_json
from exo.api.known.asked import body_and_card
from exo.api.ollama.answers import Writer, all_of
from exo.api.ollama.keeping import check_keep_alive, keep, load, unload
from exo.api.ollama.lines import MEDIA_TYPE, Lines
from exo.api.ollama.names import find_tagged
from exo.api.ollama.requests import ChatRequest, GenerateRequest
from exo.domain.ids import ModelId


async def answer(
    api: Api, request: Request[Any, Any, Any], kind: type[ChatRequest | GenerateRequest]
) -> Response[bytes] | Stream:
    """What a request of this kind asks for. Raises what goes wrong before there is anything to send."""
    asked_at = time.time()
    body, card = await body_and_card(api, request, kind, find_tagged)
    writer, model_id = Writer(body.kind, body.model, asked_at), card.model_id
    check_keep_alive(body.keep_alive)
    if not body.asks_for_answer:
        return await _without_answer(api, request, body, model_id, writer)
    await keep(api, model_id, body.keep_alive)
    choices = await answering.start(api, model_id, [body.to_generation()], request.receive, body.names)
    if body.is_stream:
        return await answering.streamed(api, choices, Lines(writer, choices.loading).frames, MEDIA_TYPE)
    ((given, end),) = await answering.whole(api, choices)
    return _respond(writer.end(end, time.time(), choices.loading(), all_of(given)))


async def _without_answer(
    api: Api,
    request: Request[Any, Any, Any],
    body: ChatRequest | GenerateRequest,
    model_id: ModelId,
    writer: Writer,
) -> Response[bytes]:
    if body.keep_alive == 0:
        await unload(api, model_id)
        return _respond(writer.no_answer("unload", time.time()))
    await keep(api, model_id, body.keep_alive)
    await load(api, model_id, request.receive)
    return _respond(writer.no_answer("load", time.time()))


def _respond(answer: bytes) -> Response[bytes]:
    return written_json(answer)
