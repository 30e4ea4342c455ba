"""Decisions on deleting models from the disks of nodes."""

from exo.domain.decide.models import why_needed
from exo.domain.ids import ModelId
from exo.domain.messages.commands import RemoveModel
from exo.domain.messages.events import Event, ModelRemoved, RemovalFailed, RemovalRequested
from exo.domain.messages.reports import RemovalSeen
from exo.domain.state import State, host_of, on_disk
from exo.errors import Rejected


def remove(state: State, command: RemoveModel) -> list[Event]:
    """The model's removal from each node that has it. Raises Rejected where none has, or where it is needed."""
    model_id = command.model_id
    holders = [node for _, node in sorted(state.nodes.items()) if model_id in on_disk(node)]
    if not holders:
        raise Rejected(f"'{model_id}' is on no node's disk", code="model_not_found", param="model_id")
    if reason := why_needed(state, model_id) or _on_its_way(state, model_id):
        raise Rejected(f"'{model_id}' cannot be removed: {reason}", code="model_in_use")
    wishes = [
        RemovalRequested(node_id=one.node_id, model_id=model_id) for one in holders if model_id not in one.removals
    ]
    if not wishes:
        raise Rejected(f"'{model_id}' is being removed already", code="already_requested")
    return [*wishes]


def seen(state: State, report: RemovalSeen) -> list[Event]:
    """A model that is gone from a node's disk, or could not be deleted, where that was still waited for."""
    node, model_id = state.nodes.get(report.node_id), report.model_id
    if node is None or model_id not in node.removals:
        return []
    if report.status == "failed":
        return [RemovalFailed(node_id=node.node_id, model_id=model_id, reason=report.reason)]
    return [ModelRemoved(node_id=node.node_id, model_id=model_id, holding=report.holding)]


def _on_its_way(state: State, model_id: ModelId) -> str | None:
    """Where it is being brought to, and what to do about it; None: nowhere."""
    coming = [one for _, one in sorted(state.downloads.items()) if one.model_id == model_id and one.status != "failed"]
    hosts = ", ".join(host_of(state, one.node_id) for one in coming)
    return f"it is on its way to {hosts}: take that back first" if coming else None
