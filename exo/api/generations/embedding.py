"""Texts to vectors, for the endpoints of any API: a request like those for answers, of which vectors come."""

from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import unpack

from exo.api.bodies.param_names import Names
from exo.api.context import Api
from exo.api.generations import answering
from exo.api.generations.generation import Generation
from exo.api.generations.generations import Receive
from exo.api.http.errors import GenerationFailed
from exo.bus.chunks import delete_chunks
from exo.domain.ids import ModelId
from exo.domain.messages.chunks import EndPiece
from exo.domain.messages.requests import EmbeddingRequest
from exo.errors import Retryable

NAMES: Names = {"messages": "input"}
"""Of parameters, as in `exo.api.bodies.param_names`."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """All vectors of a request."""

    vectors: Sequence[str]
    """In the order of the texts, each of length 1: float32 numbers, little-endian, in base64."""
    end: EndPiece
    """What was counted and measured."""
    load_seconds: float
    """Until the model was loaded; 0 where it was."""


async def embed(
    api: Api, model_id: ModelId, request: EmbeddingRequest, receive: Receive, names: Names = NAMES
) -> Embedded:
    """The vectors of a request's texts, by a model that is loaded for it where it is not. Ends when the client goes.

    Raises GenerationFailed where one of them has none, Rejected where the disk is full, and Retryable.
    """
    choices = await answering.start(api, model_id, [request], receive, names)
    try:
        ((_, end),) = await answering.whole(api, choices)
        return Embedded(_in_order(choices.generations[0], len(request.inputs)), end, choices.loading())
    finally:
        # Nobody comes back to them, and they would take the room of answers to which somebody may.
        with suppress(Retryable):
            await delete_chunks(api.bus, choices.task_id)


def numbers(vector: str) -> tuple[float, ...]:
    """The numbers of a vector."""
    data = b64decode(vector)
    return unpack(f"<{len(data) // 4}f", data)


def _in_order(generation: Generation, count: int) -> Sequence[str]:
    """Raises GenerationFailed where one is missing."""
    vectors = generation.vectors
    if len(vectors) != count:
        raise GenerationFailed("output_lost", f"{len(vectors)} of {count} vectors came")
    return [vectors[index] for index in range(count)]
