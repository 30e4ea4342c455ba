"""The models that the cluster can run, by what its nodes hold."""

from collections.abc import Mapping
from typing import Literal

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard
from exo.domain.state import State, damage_of, instances_of, is_ready, on_disk
from exo.errors import Rejected, Retryable
from exo.models.names import resolve, resolve_id

Availability = Literal["ready", "loading", "on_disk", "obtainable"]
"""ready: answers now. loading: placed. on_disk: loads when it is asked for. obtainable: is fetched first."""

_ORDER: tuple[Availability, ...] = ("ready", "loading", "on_disk", "obtainable")


def known_models(state: State) -> Mapping[ModelId, tuple[ModelCard, Availability]]:
    """Each model that some node has or can get: the ready ones first, then by name."""
    cards: dict[ModelId, ModelCard] = {}
    on_disk: set[ModelId] = set()
    for _, node in sorted(state.nodes.items()):
        for model_id, holding in node.holdings.items():
            cards.setdefault(model_id, holding.card)
            if holding.status == "ready":
                on_disk.add(model_id)
    found: dict[ModelId, tuple[ModelCard, Availability]] = {
        model_id: (card, _availability(state, model_id, on_disk)) for model_id, card in cards.items()
    }
    return dict(sorted(found.items(), key=lambda item: (_ORDER.index(item[1][1]), item[0].casefold())))


def find_model(state: State, name: str) -> ModelCard:
    """The card of a model by its full or short name. Raises Rejected where there is none, Retryable without nodes."""
    _check_nodes(state)
    models = known_models(state)
    card = resolve(name, [card for card, _ in models.values()])
    if card is None:
        damaged_id = resolve_id(name, [one.model_id for node in state.nodes.values() for one in node.damaged])
        if damaged_id is not None:
            raise Rejected(damage_of(state, damaged_id) or "", code="model_damaged", param="model")
        at_hand = [model_id for model_id, (_, status) in models.items() if status != "obtainable"]
        more = len(models) - len(at_hand)
        there = ", ".join(at_hand) or "none"
        reason = f"there is no model '{name}'; at hand: {there}" + (f"; {more} more can be fetched" if more else "")
        raise Rejected(f"{reason}; GET /v1/models lists them", code="model_not_found", param="model")
    return card


def find_on_disk(state: State, name: str) -> ModelId:
    """A model that some node has on its disk, even damaged, by its full or short name. Raises as `find_model`."""
    _check_nodes(state)
    there = sorted({model_id for node in state.nodes.values() for model_id in on_disk(node)})
    model_id = resolve_id(name, there)
    if model_id is None:
        reason = f"no node has a model '{name}' on its disk; there are: {', '.join(there) or 'none'}"
        raise Rejected(reason, code="model_not_found", param="model")
    return model_id


def _check_nodes(state: State) -> None:
    if not state.nodes:
        raise Retryable("no node has joined the cluster yet: start `exo worker`, or ask again in a moment")


def _availability(state: State, model_id: ModelId, on_disk: set[ModelId]) -> Availability:
    instances = instances_of(state, model_id)
    if any(is_ready(state, instance) for instance in instances):
        return "ready"
    if instances:
        return "loading"
    return "on_disk" if model_id in on_disk else "obtainable"
