"""`POST /ollama/api/chat`."""

from typing import Any

from litestar import Request, Response, post
from litestar.response import Stream

from exo.api.bodies.openapi import JSON, operation
from exo.api.context import Api
from exo.api.ollama.answering import answer
from exo.api.ollama.lines import MEDIA_TYPE
from exo.api.ollama.requests import ChatRequest
from exo.api.ollama.shapes import ChatAnswer

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Hello!"}]}


@post(
    "/ollama/api/chat",
    status_code=200,
    summary="Answer a conversation",
    tags=["Ollama"],
    operation_class=operation(body=ChatRequest, example=EXAMPLE, answer=ChatAnswer, media_types=(JSON, MEDIA_TYPE)),
)
async def chat(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """The answer of a model, as a stream unless told otherwise. See docs/api.md for each parameter."""
    return await answer(api, request, ChatRequest)
