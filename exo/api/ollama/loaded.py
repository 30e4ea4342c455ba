"""`GET /ollama/api/ps`: the models that are loaded, and until when."""

import time

from litestar import Response, get
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.ollama.answers import timestamp
from exo.api.ollama.descriptions import Details, details_of, digest_of
from exo.api.ollama.names import tagged
from exo.domain.ids import ModelId
from exo.domain.instance import Instance
from exo.domain.placement.memory import promised_bytes
from exo.domain.state import State, instances_of

FOR_EVER = 100 * 365 * 86_400.0
"""Seconds from now, for a model that stays. Ollama's own client says "Forever" to more than twenty years."""


class Loaded(TypedDict):
    """A model in memory. `size` is what was promised to it, `size_vram` the part of it on nodes with a GPU."""

    name: str
    model: str
    size: int
    digest: str
    details: Details
    expires_at: str
    size_vram: int
    context_length: int


class AllLoaded(TypedDict):
    """Those that are loaded, or are being loaded, by name."""

    models: list[Loaded]


@get("/ollama/api/ps", summary="Models in memory", tags=["Ollama"], operation_class=operation(answer=AllLoaded))
async def list_loaded(api: Api) -> Response[bytes]:
    """Every model that is placed on nodes."""
    state, now = api.state, time.time()
    placed = sorted({instance.model_id for instance in state.instances.values()})
    answer: AllLoaded = {"models": [_loaded(state, model_id, now) for model_id in placed]}
    return json_response(answer)


def _loaded(state: State, model_id: ModelId, now: float) -> Loaded:
    instances = instances_of(state, model_id)
    card = instances[0].card
    return {
        "name": tagged(model_id),
        "model": tagged(model_id),
        "size": sum(_bytes(state, instance, on_gpus=False) for instance in instances),
        "digest": digest_of(model_id),
        "details": details_of(card),
        "expires_at": timestamp(expires_at(state, model_id, now)),
        "size_vram": sum(_bytes(state, instance, on_gpus=True) for instance in instances),
        "context_length": max(instance.context for instance in instances),
    }


def expires_at(state: State, model_id: ModelId, now: float) -> float:
    """When the model is unloaded if nobody asks for it until then, seconds since the epoch."""
    limit = state.idle_limits.get(model_id)
    if limit is None:
        return now + FOR_EVER
    is_used = any(generation.model_id == model_id for generation in state.generations.values())
    return (now if is_used else limit.since) + limit.seconds


def _bytes(state: State, instance: Instance, *, on_gpus: bool) -> int:
    nodes = [state.nodes[node_id] for node_id in dict.fromkeys(instance.node_ids)]
    return sum(promised_bytes(instance, node.node_id) for node in nodes if node.facts.gpus or not on_gpus)
