"""What today's placement would make of a decision of the past."""

from dataclasses import dataclass
from typing import get_args

from exo.domain.decide.instances import card_of
from exo.domain.ids import ModelId, NodeId
from exo.domain.messages.events import GenerationFinished, InstancePlaced, Recorded
from exo.domain.placement import PlacementRequest, Refused, RefusedCode, place
from exo.domain.state import State
from exo.errors import Rejected

REFUSALS: frozenset[str] = frozenset(get_args(RefusedCode))
"""The codes of a generation that ended because no node could take its model."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a model went, or would go."""

    reason: str
    node_ids: tuple[NodeId, ...] = ()
    """None: it was refused."""
    engine: str = ""
    context: int = 0
    slots: int = 0

    @property
    def place(self) -> tuple[tuple[NodeId, ...], str, int, int]:
        """All but the reason, whose wording may change."""
        return (self.node_ids, self.engine, self.context, self.slots)


@dataclass(frozen=True, slots=True)
class Reconsidered:
    """One decision, as it was and as it would be."""

    position: int
    time: float
    """When it was made, seconds since the epoch."""
    model_id: ModelId
    then: Choice
    now: Choice

    @property
    def differs(self) -> bool:
        """Whether it would go elsewhere, or nowhere, or no longer nowhere."""
        return self.then.place != self.now.place


def reconsider(state: State, recorded: Recorded) -> Reconsidered | None:
    """The placement that an event tells of, and today's for the same request. `state` is that just before the event.

    A model that was placed is asked for again with the context and the slots that it got. One that was refused to a
    generation for want of a place is asked for with the defaults, as it was. None where the event is neither.
    """
    event = recorded.entry.event
    match event:
        case InstancePlaced(instance=instance):
            then = Choice(event.reason, instance.node_ids, instance.engine, instance.context, instance.slots)
            request = _request(event)
            return _reconsidered(recorded, instance.model_id, then, _choice(state, request))
        case GenerationFinished(task_id=task_id) if is_refusal(state, event):
            model_id = state.generations[task_id].model_id
            return _reconsidered(recorded, model_id, Choice(event.error), _for_generation(state, model_id))
        case _:
            return None


def is_refusal(state: State, event: GenerationFinished) -> bool:
    """Whether a generation ended because its model had no place. `state` is that just before the event."""
    generation = state.generations.get(event.task_id)
    return event.code in REFUSALS and generation is not None and generation.instance_id is None


def _request(event: InstancePlaced) -> PlacementRequest:
    instance = event.instance
    return PlacementRequest(
        card=instance.card,
        context=instance.context,
        slots=instance.slots,
        engine=instance.engine,
        sharding=instance.shards[0].sharding,
        backend=instance.backend,
        min_nodes=event.min_nodes,
        node_ids=event.required_nodes,
    )


def _reconsidered(recorded: Recorded, model_id: ModelId, then: Choice, now: Choice) -> Reconsidered:
    return Reconsidered(recorded.position, recorded.entry.recorded_at, model_id, then, now)


def _for_generation(state: State, model_id: ModelId) -> Choice:
    try:
        return _choice(state, PlacementRequest(card_of(state, model_id)))
    except Rejected as refusal:
        return Choice(refusal.reason)


def _choice(state: State, request: PlacementRequest) -> Choice:
    placement = place(state, request)
    if isinstance(placement, Refused):
        return Choice(placement.reason)
    return Choice(placement.reason, placement.node_ids, placement.engine, placement.context, placement.slots)
