"""`GET /instance/await`: answers when a model would answer."""

import time
from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter
from pydantic_core import to_json
from typing_extensions import TypedDict

from exo.api.cluster.previews import Model
from exo.api.context import Api
from exo.api.models_known import find_model
from exo.api.openapi import operation
from exo.api.progress import statuses_of
from exo.domain.ids import ModelId
from exo.domain.state import State, instances_of, is_ready, recent_failure
from exo.errors import Rejected

PATIENCE = 60.0

Patience = Annotated[float, QueryParameter(name="wait", ge=0, le=600, description="Seconds to wait at most")]


class Readiness(TypedDict):
    """A model that answers."""

    model_id: str
    ready: bool
    instance_ids: list[str]


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

    def is_decided(state: State) -> bool:
        return bool(_ready_ids(state, model_id)) or _failure(state, model_id) is not None

    await api.replica.wait_for(is_decided, wait)
    ready = _ready_ids(api.state, model_id)
    if not ready:
        raise _why_not(api, model_id, wait)
    answer: Readiness = {"model_id": model_id, "ready": True, "instance_ids": ready}
    return Response(to_json(answer), media_type="application/json")


def _ready_ids(state: State, model_id: ModelId) -> list[str]:
    return [instance.instance_id for instance in instances_of(state, model_id) if is_ready(state, instance)]


def _failure(state: State, model_id: ModelId) -> str | None:
    failure = recent_failure(state, model_id, time.time())
    return None if failure is None else failure.reason


def _why_not(api: Api, model_id: ModelId, waited: float) -> Rejected:
    if failure := _failure(api.state, model_id):
        return Rejected(f"the model '{model_id}' could not be loaded: {failure}", code="model_failed")
    instances = instances_of(api.state, model_id)
    what = f"its runners are {', '.join(statuses_of(api.state, instances, api.loading))}" if instances else ""
    reason = what or "no instance of it is placed: POST /place_instance, or a request for it, loads it"
    return Rejected(f"'{model_id}' is not ready after {waited:.0f} s: {reason}", code="timeout", param="model")
