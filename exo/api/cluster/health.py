"""`GET /health` and `GET /ready`: whether the process lives, and whether a request would be answered now."""

import time
from typing import NotRequired

from litestar import Response, get
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.loading import Loading
from exo.api.progress import statuses_of
from exo.bus.lease import holder
from exo.domain.instance import Instance
from exo.domain.runner_status import Failed
from exo.domain.state import State, is_ready

FRESH = 10.0
"""Seconds that a node's last figures count as a sign of life."""


@get("/health", summary="Does the process live", tags=["Cluster"], operation_class=operation(answer=dict[str, str]))
async def health() -> dict[str, str]:
    """Always 200."""
    return {"status": "ok"}


class ReadyAnswer(TypedDict):
    """Whether it would, and else everything that is in the way."""

    ready: bool
    reasons: NotRequired[list[str]]


@get(
    "/ready",
    summary="Would a request be answered now",
    tags=["Cluster"],
    operation_class=operation(answer=ReadyAnswer, others={503: ReadyAnswer}),
)
async def ready(api: Api) -> Response[bytes]:
    """200, or 503 with everything that is in the way."""
    reasons = await reasons_against(api)
    body: ReadyAnswer = {"ready": False, "reasons": reasons} if reasons else {"ready": True}
    return json_response(body, status_code=503 if reasons else 200)


async def reasons_against(api: Api) -> list[str]:
    """What is missing for an answer."""
    if not api.bus.is_connected:
        return [f"NATS at {api.bus.url} cannot be reached"]
    reasons: list[str] = []
    if await holder(api.bus) is None:
        reasons.append("no master leads")
    if not api.replica.is_live:
        return [*reasons, "no master has told this process the cluster's state"]
    if not any(_answers(api, instance) for instance in api.replica.state.instances.values()):
        reasons.append(why_not_ready(api.replica.state, api.loading))
    return reasons


def _answers(api: Api, instance: Instance) -> bool:
    return is_ready(api.replica.state, instance) and all(
        node_id in api.gauges and time.monotonic() - api.gauges[node_id][0] < FRESH for node_id in instance.node_ids
    )


def why_not_ready(state: State, loading: Loading) -> str:
    """Why no model answers, in words."""
    if not state.nodes:
        return "no node has joined"
    if not state.instances:
        return "no model is placed"
    if any(is_ready(state, instance) for instance in state.instances.values()):
        return "the nodes with a ready model are silent"
    failed = {one.status.reason for one in state.runners.values() if isinstance(one.status, Failed)}
    if failed:
        return f"no model is ready: its runners failed and are started again: {'; '.join(sorted(failed))}"
    statuses = statuses_of(state, state.instances.values(), loading)
    return f"no model is ready: its runners are {', '.join(statuses)}"
