"""`GET /instance/previews`: every way in which a model could be placed now, and why the others cannot be taken."""

from collections.abc import Mapping
from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import find_model
from exo.api.known.nodes import find_node
from exo.domain.ids import NodeId
from exo.domain.limits import CONTEXT_MOST, NODES_MOST
from exo.domain.placement.previews import BACKENDS, SHARDINGS, Preview, previews
from exo.domain.placement.request import Placement, PlacementRequest
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import names_of

Model = Annotated[str, QueryParameter(name="model", min_length=1, description="Full or short name")]
Context = Annotated[
    int | None,
    QueryParameter(name="context", gt=0, le=CONTEXT_MOST, description="Tokens to reserve memory for; absent: 8192"),
]


MinNodes = Annotated[
    int, QueryParameter(name="min_nodes", gt=0, le=NODES_MOST, description="Only ways over so many nodes at least")
]
NodeIds = Annotated[
    list[str] | None,
    QueryParameter(name="node_ids", max_items=NODES_MOST, description="Nodes that must be among those chosen"),
]
OfSharding = Annotated[Sharding | None, QueryParameter(name="sharding", description="Only this one")]
OfBackend = Annotated[Backend | None, QueryParameter(name="backend", description="Only this one")]
OfEngine = Annotated[EngineName | None, QueryParameter(name="engine", description="Only this one")]


class ShardPreview(TypedDict):
    """What one rank would hold. `name` is the hostname, with the node's id where two nodes have the same."""

    node_id: str
    hostname: str
    name: str
    start_layer: int
    end_layer: int
    needed_bytes: int


class WayPreview(TypedDict):
    """One way of placing it. `code` and `reason` say why it is not offered, or by which figures it is.
    `tokens_per_second` is what was measured when this engine last loaded it there; null where it never did."""

    engine: EngineName
    sharding: Sharding
    backend: Backend
    nodes: int
    offered: bool
    needed_bytes: int
    shards: list[ShardPreview]
    code: str | None
    reason: str
    tokens_per_second: float | None


class Previews(TypedDict):
    """Every way."""

    model_id: str
    previews: list[WayPreview]


@get(
    "/instance/previews", summary="Where a model could go", tags=["Cluster"], operation_class=operation(answer=Previews)
)
async def show_previews(
    model: Model,
    api: Api,
    context: Context = None,
    min_nodes: MinNodes = 1,
    node_ids: NodeIds = None,
    sharding: OfSharding = None,
    backend: OfBackend = None,
    engine: OfEngine = None,
) -> Response[bytes]:
    """Sharding x backend x number of nodes, each with its figures. Nothing is placed by it."""
    state = api.state
    card, names = find_model(state, model), names_of(state.nodes.values())
    chosen = tuple(find_node(state, name).node_id for name in node_ids or ())
    request = PlacementRequest(card, context, engine=engine, min_nodes=min_nodes, node_ids=chosen)
    ways = previews(state, request, [sharding] if sharding else SHARDINGS, [backend] if backend else BACKENDS)
    found = [_plain(preview, names) for preview in ways]
    answer: Previews = {"model_id": card.model_id, "previews": found}
    return json_response(answer)


def _plain(preview: Preview, names: Mapping[NodeId, str]) -> WayPreview:
    placement = preview.placement
    return {
        "engine": preview.engine,
        "sharding": preview.sharding,
        "backend": preview.backend,
        "nodes": preview.nodes,
        "offered": placement is not None,
        "needed_bytes": preview.needed,
        "shards": [] if placement is None else shards(placement, names),
        "code": preview.code,
        "reason": preview.reason,
        "tokens_per_second": preview.tokens_per_second,
    }


def shards(placement: Placement, names: Mapping[NodeId, str]) -> list[ShardPreview]:
    """By rank."""
    return [
        {
            "node_id": share.node.node_id,
            "hostname": share.node.facts.hostname,
            "name": names[share.node.node_id],
            "start_layer": share.start_layer,
            "end_layer": share.end_layer,
            "needed_bytes": share.needed,
        }
        for share in placement.shares
    ]
