"""Queued generations to ready instances, and instances for models that are asked for and not there."""

from collections import Counter
from collections.abc import Callable

from exo.domain import limits
from exo.domain.decide import ending, instances
from exo.domain.ids import InstanceId, ModelId
from exo.domain.instance import Instance
from exo.domain.messages.events import Event, GenerationDispatched
from exo.domain.placement import Placement, PlacementRequest, Refused, place
from exo.domain.prefill_sources import prefill_ids
from exo.domain.state import Generation, State, instances_of, is_ready, recent_failure
from exo.domain.turns import Turns
from exo.errors import Rejected


def dispatch(state: State, now: float, new_id: Callable[[], str]) -> list[Event]:
    """The events that bring waiting generations forward: in turns of the clients, least busy replica first."""
    waiting = [generation for generation in state.generations.values() if generation.instance_id is None]
    if not waiting:
        return []
    by_model: dict[ModelId, list[Generation]] = {}
    for generation in sorted(waiting, key=lambda generation: generation.queued_position):
        by_model.setdefault(generation.model_id, []).append(generation)
    busy = Counter(one.instance_id for one in state.generations.values() if one.instance_id is not None)
    events: list[Event] = []
    placing = False
    for model_id, generations in by_model.items():
        if failure := recent_failure(state, model_id, now):
            error = f"the model {model_id} could not be loaded: {failure.reason}"
            events += ending.end_generations(generations, "error", "model_failed", error)
        elif instances_of(state, model_id):
            events += _dispatch_model(state, model_id, generations, busy, now)
        elif not placing:
            # One placement a round: the next is decided on the state that this one leaves.
            placed = _place_model(state, model_id, generations, now, new_id)
            placing = bool(placed)
            events += placed
    return events


def _dispatch_model(
    state: State, model_id: ModelId, generations: list[Generation], busy: Counter[InstanceId], now: float
) -> list[Event]:
    free = [one for one in _answering(state, model_id) if busy[one.instance_id] < one.slots]
    if not free:
        return []
    turns = Turns(state, model_id, generations)
    events: list[Event] = []
    while free and (generation := turns.take(now)):
        target = min(free, key=lambda instance: busy[instance.instance_id])
        busy[target.instance_id] += 1
        if busy[target.instance_id] == target.slots:
            free.remove(target)
        events.append(GenerationDispatched(task_id=generation.task_id, instance_id=target.instance_id))
    return events


def _answering(state: State, model_id: ModelId) -> list[Instance]:
    """The ready instances that answer requests. One that prefills for others does so only where nobody else can: what
    it decodes would hold up their prompts."""
    ready = [one for one in instances_of(state, model_id) if is_ready(state, one)]
    prefilling = prefill_ids(state)
    return [one for one in ready if one.instance_id not in prefilling] or ready


def _place_model(
    state: State, model_id: ModelId, generations: list[Generation], now: float, new_id: Callable[[], str]
) -> list[Event]:
    try:
        card = instances.card_of(state, model_id)
    except Rejected:
        return []  # the node that has it is away, or its folder is damaged; the deadline of the queue is running
    request = PlacementRequest(card)
    placement = place(state, request)
    if isinstance(placement, Placement):
        return [instances.placed(placement, request, new_id)]
    if placement.may_pass:
        return _make_room(state, request)
    if placement.lacks_links and any(now - node.joined_at < limits.LINKS_SETTLE for node in state.nodes.values()):
        return []
    return ending.end_generations(generations, "error", placement.code, placement.reason)


def _make_room(state: State, request: PlacementRequest) -> list[Event]:
    """One idle instance taken away, the first in the order of ids, where that helps; none while what runs is in the
    way."""
    used = {generation.instance_id for generation in state.generations.values()}
    asked_for = {generation.model_id for generation in state.generations.values()}
    idle = {
        instance_id
        for instance_id, instance in state.instances.items()
        if instance_id not in used and instance.model_id not in asked_for and is_ready(state, instance)
    }
    placement = place(state, request, leaving=idle)
    if isinstance(placement, Refused):
        return []
    for instance_id in sorted(idle):
        instance = state.instances[instance_id]
        if set(placement.node_ids).intersection(instance.node_ids):
            return ending.delete_instance(state, instance, f"room was needed for {request.card.model_id}")
    return []
