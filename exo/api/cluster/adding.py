"""`/models/add` and `/models/custom`: models of the hub made known to the cluster, and taken back."""

import time
from typing import Annotated, Any

from litestar import Request, Response, delete, post
from pydantic import BaseModel, ConfigDict, Field

from exo.api.bodies.openapi import command
from exo.api.cluster.commands import Wait, send
from exo.api.context import Api
from exo.domain.ids import ModelId
from exo.domain.messages.commands import AddModel, ForgetModel
from exo.domain.state import State, is_known
from exo.errors import Rejected
from exo.models.names import checked_id, resolve_id

EXAMPLE = {"model_id": "mlx-community/Qwen3-0.6B-4bit"}
PARAM = "model_id"


class AddModelRequest(BaseModel):
    """The body of `POST /models/add`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model_id: Annotated[str, Field(min_length=1)]


@post(
    "/models/add",
    status_code=202,
    summary="Make a model of the hub known",
    tags=["Cluster"],
    operation_class=command(body=AddModelRequest, example=EXAMPLE),
)
async def add_model(request: Request[Any, Any, Any], api: Api, wait: Wait = None) -> Response[bytes]:
    """Have every node know a model of the hub, which its configuration there describes. With `wait` it answers once a
    node has said that it can get it."""
    body = AddModelRequest.model_validate_json(await request.body())
    model_id = _on_hub(body.model_id)
    if is_known(api.state, model_id):
        raise Rejected(f"'{model_id}' is known already", code="already_known", param=PARAM)
    card = await api.hub.card(model_id)
    begun = time.monotonic()
    answer = await send(api, AddModel(card=card), wait)
    if wait:
        await api.replica.wait_for(lambda state: _is_obtainable(state, card.model_id), begun + wait - time.monotonic())
    return answer


@delete(
    "/models/custom/{model:path}",
    status_code=202,
    summary="Forget a model that was added",
    tags=["Cluster"],
    operation_class=command(),
)
async def forget_model(model: str, api: Api, wait: Wait = None) -> Response[bytes]:
    """Take back that a model was made known. What nodes have of it on their disks stays, and they go on to know it."""
    name = model.removeprefix("/")
    model_id = resolve_id(name, api.state.added_models)
    if model_id is None:
        raise Rejected(f"no model '{name}' was added: GET /models says of each whether it was", code="model_not_found")
    return await send(api, ForgetModel(model_id=model_id), wait)


def _on_hub(name: str) -> ModelId:
    try:
        return checked_id(name)
    except Rejected as refusal:
        raise Rejected(refusal.reason, code=refusal.code, param=PARAM) from refusal


def _is_obtainable(state: State, model_id: ModelId) -> bool:
    """Whether some node can get it; also where there is no node that could say so."""
    return not state.nodes or any(model_id in node.holdings for node in state.nodes.values())
