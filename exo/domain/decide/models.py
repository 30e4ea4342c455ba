"""Decisions on models that somebody makes known to the cluster."""

from exo.domain.decide import ending
from exo.domain.ids import ModelId
from exo.domain.messages.commands import AddModel, ForgetModel
from exo.domain.messages.events import DownloadCancelled, Event, ModelAdded, ModelForgotten
from exo.domain.state import State, instances_of, is_known
from exo.errors import Rejected


def add(state: State, command: AddModel) -> list[Event]:
    """The model known. Raises Rejected where it is already."""
    model_id = command.card.model_id
    if is_known(state, model_id):
        raise Rejected(f"'{model_id}' is known already", code="already_known", param="model_id")
    return [ModelAdded(card=command.card)]


def forget(state: State, command: ForgetModel) -> list[Event]:
    """The model known no more, and not fetched any more where somebody asked for that. What nodes have of it on their
    disks stays. Raises Rejected where it was not added, or is needed."""
    model_id = command.model_id
    if model_id not in state.added_models:
        raise Rejected(f"'{model_id}' was not added, and so cannot be forgotten", code="model_not_found")
    if reason := why_needed(state, model_id):
        raise Rejected(f"'{model_id}' cannot be forgotten: {reason}", code="model_in_use")
    asked_for = [one for _, one in sorted(state.downloads.items()) if one.model_id == model_id and one.requested]
    taken_back = [DownloadCancelled(node_id=one.node_id, model_id=model_id) for one in asked_for]
    return [*taken_back, ModelForgotten(model_id=model_id)]


def why_needed(state: State, model_id: ModelId) -> str | None:
    """Which instances have a model, or that requests wait for it; None where nothing is in the way of its end."""
    placed = ", ".join(f"instance {instance.instance_id}" for instance in instances_of(state, model_id))
    if placed:
        return f"{placed} has it: unload it first"
    return "requests wait for it" if ending.waiting_for(state, model_id) else None
