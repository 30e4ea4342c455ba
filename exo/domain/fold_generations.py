"""How events about generations change State. Total, as all of the fold.

Each function gives the fields of State that are others afterwards.
"""

from exo.domain import fold_idle
from exo.domain.messages.events import (
    CancellationRequested,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
)
from exo.domain.state import ENDED_KEPT, EndedGeneration, Generation, State, StateChanges


def queued(state: State, event: GenerationQueued, position: int, time: float) -> StateChanges:
    """One more generation waits."""
    generation = Generation(
        task_id=event.task_id,
        model_id=event.model_id,
        key=event.key,
        reply_to=event.reply_to,
        queued_at=time,
        queued_position=position,
        log_output=event.prompt is not None,
        client=event.client,
        needs_reader=event.needs_reader,
    )
    return {"generations": state.generations.set(event.task_id, generation)}


def dispatched(state: State, event: GenerationDispatched, time: float) -> StateChanges:
    """It is with the processes that the instance's runners are now."""
    generation = state.generations.get(event.task_id)
    instance = state.instances.get(event.instance_id)
    if generation is None or instance is None:
        return {}
    changes = {
        "instance_id": event.instance_id,
        "dispatched_at": time,
        "processes": tuple([state.runners[shard.runner_id].process for shard in instance.shards]),
    }
    return {"generations": state.generations.set(event.task_id, generation.replaced(changes))}


def cancellation_requested(state: State, event: CancellationRequested, time: float) -> StateChanges:
    """It is to stop."""
    generation = state.generations.get(event.task_id)
    if generation is None:
        return {}
    cancelled = generation.replaced({"cancel_requested_at": time})
    return {"generations": state.generations.set(event.task_id, cancelled)}


def finished(state: State, event: GenerationFinished, time: float) -> StateChanges:
    """It moves from the live ones to the bounded tail of ended ones."""
    generation = state.generations.get(event.task_id)
    if generation is None:
        return {}
    ended = EndedGeneration(
        task_id=event.task_id,
        model_id=generation.model_id,
        key=generation.key,
        finish_reason=event.finish_reason,
        usage=event.usage,
        timings=event.timings,
        queued_at=generation.queued_at,
        ended_at=time,
        error=event.error,
        client=generation.client,
        dispatched_at=generation.dispatched_at,
    )
    changes = fold_idle.used(state, generation.model_id, time)
    changes["generations"] = state.generations.delete(event.task_id)
    changes["ended"] = (*state.ended[1 - ENDED_KEPT :], ended)
    return changes
