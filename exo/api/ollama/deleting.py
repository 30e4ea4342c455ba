"""`DELETE /ollama/api/delete`: takes a model off the disks of the nodes that have it."""

from collections.abc import Mapping
from typing import Any, Literal

from litestar import Request, Response, delete
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.cluster.commands import carry_out
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import find_on_disk
from exo.api.ollama.named import Named
from exo.api.ollama.names import TAG
from exo.domain.ids import ModelId, NodeId
from exo.domain.limits import REMOVING
from exo.domain.messages.commands import RemoveModel
from exo.domain.messages.events import Recorded, RemovalFailed
from exo.domain.state import State, host_of, is_leaving, on_disk
from exo.errors import Rejected, Retryable

DECIDED = 10.0
"""Seconds that a master has to decide on it, and later to notice that a worker has overrun its deadline."""


class DeleteRequest(Named):
    """The body of `DELETE /ollama/api/delete`."""


class Deleted(TypedDict):
    """They are gone."""

    status: Literal["success"]


@delete(
    "/ollama/api/delete",
    status_code=200,
    summary="Delete a model from the disks",
    tags=["Ollama"],
    operation_class=operation(body=DeleteRequest, example={"model": "SmolLM2-135M-Instruct"}, answer=Deleted),
)
async def delete_model(request: Request[Any, Any, Any], api: Api) -> Response[bytes]:
    """Delete a model's files on every node that has them in exo's own folder, once nothing needs the model."""
    body = DeleteRequest.model_validate_json(await request.body())
    model_id = find_on_disk(api.state, body.wanted.removesuffix(TAG))
    failures = await _remove(api, model_id)
    if problem := why_there(api.state, model_id, failures):
        raise Rejected(f"{model_id} was not deleted everywhere: {problem}", code="not_removed", param="model")
    answer: Deleted = {"status": "success"}
    return json_response(answer)


def why_there(state: State, model_id: ModelId, failures: Mapping[NodeId, str]) -> str:
    """Of each node that did not delete a model, or still has it, why; empty: there is none. Pure."""
    still = {node_id: "it is still there" for node_id, node in state.nodes.items() if model_id in on_disk(node)}
    reasons = sorted((still | dict(failures)).items())
    return "; ".join(f"{host_of(state, node_id)}: {reason}" for node_id, reason in reasons)


async def _remove(api: Api, model_id: ModelId) -> Mapping[NodeId, str]:
    """Have the model removed, and wait for that. What went wrong, by node."""
    failures: dict[NodeId, str] = {}

    def listen(_state: State, recorded: Recorded | None) -> None:
        event = recorded.entry.event if recorded else None
        if isinstance(event, RemovalFailed) and event.model_id == model_id:
            failures[event.node_id] = event.reason

    end = api.replica.listen(listen)
    try:
        await carry_out(api, RemoveModel(model_id=model_id), DECIDED, done={"already_requested"})
        if not await api.replica.wait_for(lambda state: not is_leaving(state, model_id), REMOVING + DECIDED):
            raise Retryable(f"no master has said within {REMOVING + DECIDED:.0f} s what became of it")
    finally:
        end()
    return failures
