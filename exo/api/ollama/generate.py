"""`POST /ollama/api/generate`."""

from typing import Any

from litestar import Request, Response, post
from litestar.response import Stream

from exo.api.bodies.openapi import JSON, operation
from exo.api.context import Api
from exo.api.ollama.answering import answer
from exo.api.ollama.lines import MEDIA_TYPE
from exo.api.ollama.requests import GenerateRequest
from exo.api.ollama.shapes import GenerateAnswer

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "prompt": "Hello!"}


@post(
    "/ollama/api/generate",
    status_code=200,
    summary="Answer a prompt",
    tags=["Ollama"],
    operation_class=operation(
        body=GenerateRequest, example=EXAMPLE, answer=GenerateAnswer, media_types=(JSON, MEDIA_TYPE)
    ),
)
async def generate(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """The answer of a model, as a stream unless told otherwise. See docs/api.md for each parameter."""
    return await answer(api, request, GenerateRequest)
