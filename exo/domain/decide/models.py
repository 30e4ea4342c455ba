"""Decisions on models that somebody makes known to the cluster."""

from exo.domain.decide import ending
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
    placed = ", ".join(f"instance {instance.instance_id}" for instance in instances_of(state, model_id))
    if placed or ending.waiting_for(state, model_id):
        has_it = f"{placed} has it: unload it first" if placed else "requests wait for it"
        raise Rejected(f"'{model_id}' cannot be forgotten: {has_it}", code="model_in_use")
    asked_for = [one for _, one in sorted(state.downloads.items()) if one.model_id == model_id and one.requested]
    taken_back = [DownloadCancelled(node_id=one.node_id, model_id=model_id) for one in asked_for]
    return [*taken_back, ModelForgotten(model_id=model_id)]
