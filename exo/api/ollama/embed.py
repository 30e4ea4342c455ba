"""`POST /ollama/api/embed`, and `POST /ollama/api/embeddings` as it was before."""

import asyncio
import time
from typing import Any

from litestar import Request, Response, post
from pydantic_core import to_json
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.bodies.param_names import Names
from exo.api.context import Api
from exo.api.generations.embedding import NAMES, Embedded, embed, numbers
from exo.api.http.json_response import json_response, written_json
from exo.api.known.asked import body_and_card
from exo.api.ollama.answers import nanoseconds
from exo.api.ollama.embed_requests import EmbeddingsRequest, EmbedRequest
from exo.api.ollama.keeping import check_keep_alive, keep, load
from exo.api.ollama.names import find_tagged
from exo.domain.ids import ModelId

PROMPT_NAMES: Names = {"messages": "prompt", "input[0]": "prompt"}


class EmbedAnswer(TypedDict):
    """The vectors, in the order of the texts. Durations in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class EmbeddingsAnswer(TypedDict):
    """The vector of one text."""

    embedding: list[float]


@post(
    "/ollama/api/embed",
    status_code=200,
    summary="Turn texts into vectors",
    tags=["Ollama"],
    operation_class=operation(
        body=EmbedRequest,
        example={"model": "SmolLM2-135M-Instruct", "input": ["The sea was calm.", "Birds came in winter."]},
        answer=EmbedAnswer,
    ),
)
async def embed_texts(request: Request[Any, Any, Any], api: Api) -> Response[bytes]:
    """A vector of length 1 for each text. See docs/api.md for each parameter."""
    asked_at = time.time()
    body, card = await body_and_card(api, request, EmbedRequest, find_tagged)
    embedded, load_seconds = await _embedded(api, request, body, card.model_id, NAMES)
    answer = await asyncio.to_thread(_answer, body.model, asked_at, load_seconds, embedded)
    return written_json(answer)


@post(
    "/ollama/api/embeddings",
    status_code=200,
    summary="Turn one text into a vector",
    tags=["Ollama"],
    operation_class=operation(
        body=EmbeddingsRequest,
        example={"model": "SmolLM2-135M-Instruct", "prompt": "The sea was calm."},
        answer=EmbeddingsAnswer,
    ),
)
async def embed_text(request: Request[Any, Any, Any], api: Api) -> Response[bytes]:
    """A vector of length 1 for a text; `/ollama/api/embed` takes several."""
    body, card = await body_and_card(api, request, EmbeddingsRequest, find_tagged)
    embedded, _ = await _embedded(api, request, body, card.model_id, PROMPT_NAMES)
    answer: EmbeddingsAnswer = {"embedding": list(numbers(embedded.vectors[0])) if embedded else []}
    return json_response(answer)


async def _embedded(
    api: Api,
    request: Request[Any, Any, Any],
    body: EmbedRequest | EmbeddingsRequest,
    model_id: ModelId,
    names: Names,
) -> tuple[Embedded | None, float]:
    """The vectors, None where there is no text, and the model was only loaded; and the seconds that loading it took."""
    check_keep_alive(body.keep_alive)
    await keep(api, model_id, body.keep_alive)
    texts = body.to_domain()
    if not texts.inputs:
        return None, await load(api, model_id, request.receive)
    embedded = await embed(api, model_id, texts, request.receive, names)
    return embedded, embedded.load_seconds


def _answer(model: str, asked_at: float, load_seconds: float, embedded: Embedded | None) -> bytes:
    """An EmbedAnswer, written vector by vector, so that other threads come to their turn in between."""
    figures = {
        "model": model,
        "total_duration": nanoseconds(max(0.0, time.time() - asked_at)),
        "load_duration": nanoseconds(load_seconds),
        "prompt_eval_count": embedded.end.usage.prompt_tokens if embedded else 0,
    }
    vectors = b",".join([to_json(numbers(vector)) for vector in embedded.vectors] if embedded else [])
    return to_json(figures)[:-1] + b',"embeddings":[' + vectors + b"]}"
