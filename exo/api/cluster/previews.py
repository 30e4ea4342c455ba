"""`GET /instance/previews`: every way in which a model could be placed now, and why the others cannot be taken."""

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import QueryParameter
from pydantic_core import to_json

from exo.api.context import Api
from exo.api.models_known import find_model
from exo.domain.limits import CONTEXT_MOST
from exo.domain.placement.previews import Preview, previews
from exo.domain.placement.request import Placement

Model = Annotated[str, QueryParameter(name="model", min_length=1, description="Full or short name")]
Context = Annotated[
    int | None,
    QueryParameter(name="context", gt=0, le=CONTEXT_MOST, description="Tokens to reserve memory for; absent: 8192"),
]


@get("/instance/previews", summary="Where a model could go", tags=["Cluster"])
async def show_previews(model: Model, api: Api, context: Context = None) -> Response[bytes]:
    """Sharding x backend x number of nodes, each with its figures. Nothing is placed by it."""
    card = find_model(api.state, model)
    found = [_plain(preview) for preview in previews(api.state, card, context)]
    return Response(to_json({"model_id": card.model_id, "previews": found}), media_type="application/json")


def _plain(preview: Preview) -> dict[str, Any]:
    placement = preview.placement
    return {
        "engine": preview.engine,
        "sharding": preview.sharding,
        "backend": preview.backend,
        "nodes": preview.nodes,
        "offered": placement is not None,
        "needed_bytes": preview.needed,
        "shards": [] if placement is None else _shards(placement),
        "code": preview.code or None,
        "reason": preview.reason,
    }


def _shards(placement: Placement) -> list[dict[str, Any]]:
    """By rank."""
    return [
        {
            "node_id": share.node.node_id,
            "hostname": share.node.facts.hostname,
            "start_layer": share.start_layer,
            "end_layer": share.end_layer,
            "needed_bytes": share.needed,
        }
        for share in placement.shares
    ]
