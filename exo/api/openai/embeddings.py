"""`POST /v1/embeddings`."""

import asyncio
from typing import Any, Literal

from litestar import Request, Response, post
from pydantic_core import to_json
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.generations.embedding import Embedded, embed, numbers
from exo.api.http.json_response import written_json
from exo.api.known.asked import body_and_card
from exo.api.openai.embedding_requests import EmbeddingsRequest
from exo.domain.ids import ModelId

EXAMPLE = {"model": "SmolLM2-135M-Instruct", "input": ["The sea was calm.", "Birds came in winter."]}


class VectorAnswer(TypedDict):
    """What one text became."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(TypedDict):
    """Tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(TypedDict):
    """The vectors, in the order of the texts."""

    object: Literal["list"]
    data: list[VectorAnswer]
    model: str
    usage: EmbeddingUsage


@post(
    "/v1/embeddings",
    status_code=200,
    summary="Turn texts into vectors",
    tags=["OpenAI"],
    operation_class=operation(body=EmbeddingsRequest, example=EXAMPLE, answer=EmbeddingsAnswer),
)
async def create_embeddings(request: Request[Any, Any, Any], api: Api) -> Response[bytes]:
    """A vector of length 1 for each text. See docs/api.md for each parameter."""
    body, card = await body_and_card(api, request, EmbeddingsRequest)
    embedded = await embed(api, card.model_id, body.to_domain(), request.receive)
    # Millions of numbers take a second to write, in which others would stand still.
    answer = await asyncio.to_thread(_answer, card.model_id, embedded, in_base64=body.encoding_format == "base64")
    return written_json(answer)


def _answer(model_id: ModelId, embedded: Embedded, *, in_base64: bool) -> bytes:
    """An EmbeddingsAnswer, written vector by vector, so that other threads come to their turn in between."""
    tokens = embedded.end.usage.prompt_tokens
    usage: EmbeddingUsage = {"prompt_tokens": tokens, "total_tokens": tokens}
    data = b",".join(
        to_json(VectorAnswer(object="embedding", index=index, embedding=vector if in_base64 else list(numbers(vector))))
        for index, vector in enumerate(embedded.vectors)
    )
    return b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (data, to_json(model_id), to_json(usage))
