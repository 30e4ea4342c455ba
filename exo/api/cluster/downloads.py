"""`/download`: models on their way onto nodes, asked for and taken back."""

from typing import Annotated, Any, Literal

from litestar import Request, Response, delete, get, post
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from exo.api.bodies.openapi import command, operation
from exo.api.cluster.commands import Wait, send
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import find_model
from exo.api.known.nodes import find_node
from exo.domain.ids import ModelId, NodeId
from exo.domain.messages.commands import CancelDownload, StartDownload
from exo.domain.state import Download, State, names_of

EXAMPLE = {"node_id": "studio", "model_id": "SmolLM2-135M-Instruct"}

Name = Annotated[str, Field(min_length=1)]


class DownloadRequest(BaseModel):
    """The body of `POST /download/start`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    node_id: Name
    model_id: Name


class DownloadOnNode(TypedDict):
    """A model on its way onto a node, or one that could not be had. `requested`: it needs no instance to go on."""

    node_id: str
    name: str
    model_id: str
    status: Literal["requested", "running", "failed"]
    since: float
    held: float
    requested: bool
    reason: str


class Downloads(TypedDict):
    """All of them, by node and model."""

    downloads: list[DownloadOnNode]


@get("/download", summary="Models on their way", tags=["Cluster"], operation_class=operation(answer=Downloads))
async def list_downloads(api: Api) -> Response[bytes]:
    """What nodes fetch or convert now, how far they are, and what failed last."""
    state = api.state
    names = names_of(state.nodes.values())
    answer: Downloads = {
        "downloads": [
            {
                "node_id": one.node_id,
                "name": names.get(one.node_id, one.node_id),
                "model_id": one.model_id,
                "status": one.status,
                "since": one.since,
                "held": _held(state, one),
                "requested": one.requested,
                "reason": one.reason,
            }
            for _, one in sorted(state.downloads.items())
        ]
    }
    return json_response(answer)


@post(
    "/download/start",
    status_code=202,
    summary="Bring a model onto a node",
    tags=["Cluster"],
    operation_class=command(body=DownloadRequest, example=EXAMPLE),
)
async def start_download(request: Request[Any, Any, Any], api: Api, wait: Wait = None) -> Response[bytes]:
    """Have a node fetch or convert a model, whether an instance needs it there or not."""
    body = DownloadRequest.model_validate_json(await request.body())
    node, card = find_node(api.state, body.node_id, "node_id"), find_model(api.state, body.model_id)
    return await send(api, StartDownload(node_id=node.node_id, model_id=card.model_id), wait)


@delete(
    "/download/{node:str}/{model:path}",
    status_code=202,
    summary="Take back a download",
    tags=["Cluster"],
    operation_class=command(),
)
async def cancel_download(node: str, model: str, api: Api, wait: Wait = None) -> Response[bytes]:
    """Stop bringing a model onto a node, unless an instance needs it there. What has come is kept for the next time."""
    node_id: NodeId = find_node(api.state, node, "node").node_id
    model_id: ModelId = find_model(api.state, model.removeprefix("/")).model_id
    return await send(api, CancelDownload(node_id=node_id, model_id=model_id), wait)


def _held(state: State, download: Download) -> float:
    node = state.nodes.get(download.node_id)
    holding = node.holdings.get(download.model_id) if node else None
    return holding.held if holding else 0.0
