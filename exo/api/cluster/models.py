"""`GET /models`: every model that the cluster knows, and where it lies."""

from collections.abc import Mapping
from typing import Literal

from litestar import Response, get
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import Availability, known_models
from exo.domain.ids import ModelId, NodeId
from exo.domain.model_card import ModelCard
from exo.domain.state import State, names_of


class ModelOnNode(TypedDict):
    """A model as one node has it. `held` is the part that has come, 1 where it is whole."""

    node_id: str
    name: str
    status: Literal["ready", "obtainable", "damaged"]
    held: float
    reason: str


class KnownModel(TypedDict):
    """A model with its card. The card is null where all that there is of it is damaged. `added`: somebody made it known
    to the cluster, which can forget it."""

    model_id: str
    status: Availability | Literal["damaged"]
    card: ModelCard | None
    added: bool
    nodes: list[ModelOnNode]


class KnownModels(TypedDict):
    """All of them, the ready ones first."""

    models: list[KnownModel]


@get(
    "/models",
    summary="Models, their cards and where they lie",
    tags=["Cluster"],
    operation_class=operation(answer=KnownModels),
)
async def list_models(api: Api) -> Response[bytes]:
    """What `/v1/models` lists, with cards and nodes, and those that are damaged everywhere."""
    state = api.state
    known = known_models(state)
    names = names_of(state.nodes.values())

    def shown(model_id: ModelId, status: Availability | Literal["damaged"], card: ModelCard | None) -> KnownModel:
        return {
            "model_id": model_id,
            "status": status,
            "card": card,
            "added": model_id in state.added_models,
            "nodes": _nodes(state, names, model_id),
        }

    damaged = sorted({one.model_id for node in state.nodes.values() for one in node.damaged} - set(known))
    models = [shown(model_id, status, card) for model_id, (card, status) in known.items()]
    models += [shown(model_id, "damaged", None) for model_id in damaged]
    answer: KnownModels = {"models": models}
    return json_response(answer)


def _nodes(state: State, names: Mapping[NodeId, str], model_id: ModelId) -> list[ModelOnNode]:
    found: list[ModelOnNode] = []
    for node_id, node in sorted(state.nodes.items()):
        if holding := node.holdings.get(model_id):
            held = 1.0 if holding.status == "ready" else holding.held
            found.append(_on(node_id, names[node_id], holding.status, held))
        damages = [one.reason for one in node.damaged if one.model_id == model_id]
        found += [_on(node_id, names[node_id], "damaged", 0.0, reason) for reason in damages]
    return found


def _on(
    node_id: str, name: str, status: Literal["ready", "obtainable", "damaged"], held: float, reason: str = ""
) -> ModelOnNode:
    return {"node_id": node_id, "name": name, "status": status, "held": held, "reason": reason}
