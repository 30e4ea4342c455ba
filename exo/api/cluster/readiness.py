"""`GET /instance/await`: answers when a model would answer."""

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.cluster.previews import Model
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import find_model
from exo.api.known.ready_models import wait_ready
from exo.domain.ids import InstanceId

PATIENCE = 60.0

Patience = Annotated[float, QueryParameter(name="wait", ge=0, le=600, description="Seconds to wait at most")]


class Readiness(TypedDict):
    """A model that answers."""

    model_id: str
    ready: bool
    instance_ids: list[InstanceId]


@get(
    "/instance/await",
    summary="Wait until a model is ready",
    tags=["Cluster"],
    operation_class=operation(answer=Readiness),
)
async def await_instance(model: Model, api: Api, wait: Patience = PATIENCE) -> Response[bytes]:
    """200 as soon as an instance of the model takes requests. 503 where it fails, 504 when the time is over, both with
    the reason."""
    model_id = find_model(api.state, model).model_id
    ready = await wait_ready(api, model_id, wait)
    answer: Readiness = {"model_id": model_id, "ready": True, "instance_ids": ready}
    return json_response(answer)
