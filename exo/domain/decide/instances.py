"""Decisions on placing and deleting instances."""

from collections.abc import Callable

from exo.domain.decide import ending
from exo.domain.ids import InstanceId, ModelId, RunnerId
from exo.domain.instance import Instance
from exo.domain.messages.commands import DeleteInstance, LimitIdleTime, PlaceInstance
from exo.domain.messages.events import Event, IdleTimeLimited, InstancePlaced
from exo.domain.model_card import ModelCard
from exo.domain.placement import Placement, PlacementRequest, Refused, instance_from, place
from exo.domain.state import State, damage_of, instances_of
from exo.errors import Rejected


def card_of(state: State, model_id: ModelId) -> ModelCard:
    """The card of a model that some node has or can get. Raises Rejected where none can."""
    for _, node in sorted(state.nodes.items()):
        holding = node.holdings.get(model_id)
        if holding is not None:
            return holding.card
    damage = damage_of(state, model_id)
    if damage is not None:
        raise Rejected(damage, code="model_damaged", param="model")
    raise Rejected(f"the model '{model_id}' is not known to any node", code="model_not_found", param="model")


def place_instance(state: State, command: PlaceInstance, new_id: Callable[[], str]) -> list[Event]:
    """The instance placed. Raises Rejected where the model is unknown, has less context, fits nowhere, or is there."""
    present = instances_of(state, command.model_id)
    if command.only_if_absent and present:
        raise Rejected(f"'{command.model_id}' is placed as {present[0].instance_id}", code="already_placed")
    request, placement = choose(state, command)
    return [placed(placement, request, new_id)]


def choose(state: State, command: PlaceInstance) -> tuple[PlacementRequest, Placement]:
    """Where an instance would go, and what was asked of placement. Raises Rejected where that is nowhere."""
    card = card_of(state, command.model_id)
    if command.context is not None and command.context > card.context:
        reason = f"'{command.model_id}' has a context of {card.context} tokens, less than {command.context}"
        raise Rejected(reason, code="context_too_large", param="context")
    request = PlacementRequest(
        card=card,
        context=command.context,
        slots=command.slots,
        engine=command.engine,
        sharding=command.sharding,
        backend=command.backend,
        min_nodes=command.min_nodes,
        node_ids=command.node_ids,
    )
    placement = place(state, request)
    if isinstance(placement, Refused):
        raise Rejected(placement.reason, code=placement.code)
    return request, placement


def placed(placement: Placement, request: PlacementRequest, new_id: Callable[[], str]) -> InstancePlaced:
    """The event that a placement becomes."""
    instance_id = InstanceId(new_id())
    runner_ids = [RunnerId(new_id()) for _ in placement.shares]
    return InstancePlaced(
        instance=instance_from(placement, request.card, instance_id, runner_ids),
        reason=placement.reason,
        min_nodes=request.min_nodes,
        required_nodes=request.node_ids,
    )


def limit_idle_time(state: State, command: LimitIdleTime) -> list[Event]:
    """How long the model stays that nobody asks for. Raises Rejected where no node knows it."""
    card_of(state, command.model_id)
    return [IdleTimeLimited(model_id=command.model_id, seconds=command.seconds)]


def delete_instance(state: State, command: DeleteInstance) -> list[Event]:
    """The instance deleted with all that runs on it. Raises Rejected where it is not there."""
    return ending.delete_instance(state, instance_of(state, command.instance_id), "deleted by a command")


def instance_of(state: State, instance_id: InstanceId, param: str | None = None) -> Instance:
    """The instance. Raises Rejected where it is not there; `param`: where the command names it, if it names several."""
    instance = state.instances.get(instance_id)
    if instance is None:
        raise Rejected(f"there is no instance '{instance_id}'", code="instance_not_found", param=param)
    return instance
