"""Waiting until a model is ready, and having it loaded where it is not."""

import time

from exo.api.cluster.commands import send
from exo.api.context import Api
from exo.api.http.errors import CommandRefused
from exo.api.progress import statuses_of
from exo.domain.ids import InstanceId, ModelId
from exo.domain.messages.commands import PlaceInstance
from exo.domain.state import State, instances_of, is_ready, recent_failure
from exo.errors import Rejected


async def load(api: Api, model_id: ModelId, patience: float) -> list[InstanceId]:
    """The ready instances of a model, which is placed where it is nowhere and there is room for it.

    Raises Rejected where it cannot be placed or loaded, or is not ready within `patience`, seconds; and Retryable.
    """
    deadline = time.monotonic() + patience
    if not instances_of(api.state, model_id) and _failure(api.state, model_id) is None:
        await _place(api, model_id, patience)
    return await wait_ready(api, model_id, max(0.0, deadline - time.monotonic()))


async def wait_ready(api: Api, model_id: ModelId, patience: float) -> list[InstanceId]:
    """The ready instances of a model, as soon as there is one.

    Raises Rejected where it fails, or none is ready within `patience`, seconds.
    """

    def is_decided(state: State) -> bool:
        return bool(_ready(state, model_id)) or _failure(state, model_id) is not None

    await api.replica.wait_for(is_decided, patience)
    ready = _ready(api.state, model_id)
    if not ready:
        raise _why_not(api, model_id, patience)
    return ready


async def _place(api: Api, model_id: ModelId, patience: float) -> None:
    try:
        await send(api, PlaceInstance(model_id=model_id, only_if_absent=True), patience)
    except CommandRefused as refusal:
        if refusal.code != "already_placed":
            raise Rejected(refusal.reason, code=refusal.code, param=refusal.param) from refusal


def _ready(state: State, model_id: ModelId) -> list[InstanceId]:
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
