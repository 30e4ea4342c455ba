"""`POST /ollama/api/embed`, and `POST /ollama/api/embeddings` as it was before."""

import asyncio
import time
from typing import Annotated, Any

from litestar import Request, Response, post
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError, to_json
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.bodies.param_names import Names
from exo.api.bodies.strict import ModelName, Strict
from exo.api.context import Api
from exo.api.generations.embedding import NAMES, Embedded, embed, numbers
from exo.api.http.json_response import json_response, written_json
from exo.api.ollama.answers import nanoseconds
from exo.api.ollama.durations import Duration
from exo.api.ollama.keeping import keep, load
from exo.api.ollama.names import find_tagged
from exo.api.ollama.options import Options
from exo.api.ollama.requests import NotCut
from exo.api.openai.embedding_requests import few_enough
from exo.api.openai.prompts import Listed
from exo.domain.embedding import Dimensions, EmbeddingParams
from exo.domain.messages.requests import EmbeddingRequest

PROMPT_NAMES: Names = {"messages": "prompt", "input[0]": "prompt"}


def _choosing_nothing(options: Options | None) -> Options | None:
    if options is not None and (asked := options.chosen()):
        raise PydanticCustomError("not_supported", "'{name}' is about answers, and there is none", {"name": asked[0]})
    return options


class _Embedding(Strict):
    model: ModelName
    options: Annotated[Options | None, AfterValidator(_choosing_nothing)] = None
    keep_alive: Duration = None


class EmbedRequest(_Embedding):
    """The body of `POST /ollama/api/embed`. Without a text the model is only loaded."""

    input: Annotated[list[str], Listed, AfterValidator(few_enough)] | None = None
    truncate: NotCut = None
    dimensions: Dimensions | None = None


class EmbeddingsRequest(_Embedding):
    """The body of `POST /ollama/api/embeddings`. Without a text the model is only loaded."""

    prompt: str | None = None


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
    body = EmbedRequest.model_validate_json(await request.body())
    params = EmbeddingParams(dimensions=body.dimensions)
    texts = [] if body.input in (None, [""]) else body.input or []
    embedded = await _embedded(api, request, body, texts, params, NAMES)
    return written_json(await asyncio.to_thread(_answer, body.model, asked_at, embedded))


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
    body = EmbeddingsRequest.model_validate_json(await request.body())
    texts = [body.prompt] if body.prompt else []
    embedded = await _embedded(api, request, body, texts, EmbeddingParams(), PROMPT_NAMES)
    answer: EmbeddingsAnswer = {"embedding": list(numbers(embedded.vectors[0])) if embedded else []}
    return json_response(answer)


async def _embedded(
    api: Api,
    request: Request[Any, Any, Any],
    body: EmbedRequest | EmbeddingsRequest,
    texts: list[str],
    params: EmbeddingParams,
    names: Names,
) -> Embedded | None:
    """The vectors; None where there is no text, and the model was only loaded."""
    model_id = find_tagged(api.state, body.model).model_id
    await keep(api, model_id, body.keep_alive)
    if not texts:
        await load(api, model_id, request.receive)
        return None
    return await embed(api, model_id, EmbeddingRequest(inputs=tuple(texts), params=params), request.receive, names)


def _answer(model: str, asked_at: float, embedded: Embedded | None) -> bytes:
    """An EmbedAnswer, written vector by vector, so that other threads come to their turn in between."""
    total = max(0.0, time.time() - asked_at)
    computing = embedded.end.timings.prefill + embedded.end.timings.decode if embedded else 0.0
    figures = {
        "model": model,
        "total_duration": nanoseconds(total),
        "load_duration": nanoseconds(max(0.0, total - computing)),
        "prompt_eval_count": embedded.end.usage.prompt_tokens if embedded else 0,
    }
    vectors = b",".join([to_json(numbers(vector)) for vector in embedded.vectors] if embedded else [])
    return to_json(figures)[:-1] + b',"embeddings":[' + vectors + b"]}"
