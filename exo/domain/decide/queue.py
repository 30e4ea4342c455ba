"""The queue of a model: how many may wait, and when one who was refused should come again."""

from math import ceil
from statistics import fmean

from exo.domain import limits
from exo.domain.ids import ModelId
from exo.domain.messages.commands import StartGeneration
from exo.domain.state import State
from exo.errors import Rejected


def refuse_if_full(state: State, command: StartGeneration, most: int) -> None:
    """Raises Rejected where `most` wait for the model, or nearly as many and one of them is of the same client."""
    waiting = [
        one for one in state.generations.values() if one.instance_id is None and one.model_id == command.model_id
    ]
    if len(waiting) < most - most // limits.QUEUE_RESERVED:
        return
    if len(waiting) >= most:
        reason = f"{most} requests wait for '{command.model_id}' already"
    elif any(one.client == command.client for one in waiting):
        reason = f"{len(waiting)} requests wait for '{command.model_id}', and the last places are for others"
    else:
        return
    seconds = seconds_to_room(state, command.model_id)
    raise Rejected(f"{reason}; try again in {seconds} s", code="queue_full", retry_after=seconds)


def seconds_to_room(state: State, model_id: ModelId) -> int:
    """In about how many seconds the queue of a model has one less, at least 1.

    What its last generations took, from their dispatch to their end, over how many run side by side.
    """
    took = [one.ended_at - one.dispatched_at for one in state.ended if one.model_id == model_id and one.dispatched_at]
    running = sum(one.model_id == model_id and one.instance_id is not None for one in state.generations.values())
    if not took or not running:
        return limits.ROOM_UNKNOWN
    return min(max(1, ceil(fmean(took) / running)), limits.ROOM_MOST)
