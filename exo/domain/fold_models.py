"""How events about models that are made known, or deleted from disks, change State. Total, as all of the fold.

Each function gives the fields of State that are others afterwards.
"""

from typing import TypeVar

from immutables import Map

from exo.domain.ids import ModelId
from exo.domain.messages.events import ModelAdded, ModelForgotten, ModelRemoved, RemovalFailed, RemovalRequested
from exo.domain.state import Node, State, StateChanges

T = TypeVar("T")


def known(state: State, event: ModelAdded | ModelForgotten) -> StateChanges:
    """One more model is known, or one is not any more, but where a node has it."""
    if isinstance(event, ModelAdded):
        return {"added_models": state.added_models.set(event.card.model_id, event.card)}
    if event.model_id not in state.added_models:
        return {}
    return {"added_models": state.added_models.delete(event.model_id)}


def removal(state: State, event: RemovalRequested | ModelRemoved | RemovalFailed, time: float) -> StateChanges:
    """A node's worker is to delete a model, or is not any more."""
    node = state.nodes.get(event.node_id)
    if node is None:
        return {}
    if isinstance(event, RemovalRequested):
        removals = node.removals.set(event.model_id, time)
    else:
        removals = _without(node.removals, event.model_id)
        node = _deleted(node, event) if isinstance(event, ModelRemoved) else node
    return {"nodes": state.nodes.set(event.node_id, node.replaced({"removals": removals}))}


def _deleted(node: Node, event: ModelRemoved) -> Node:
    """The node without the model, or as one that can get it again."""
    holdings = _without(node.holdings, event.model_id)
    damaged = tuple(one for one in node.damaged if one.model_id != event.model_id)
    again = holdings if event.holding is None else holdings.set(event.model_id, event.holding)
    return node.replaced({"holdings": again, "damaged": damaged})


def _without(values: Map[ModelId, T], model_id: ModelId) -> Map[ModelId, T]:
    return values.delete(model_id) if model_id in values else values
