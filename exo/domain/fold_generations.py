"""How events about generations change State. Total, as all of the fold."""

from exo.domain.messages.events import (
    CancellationRequested,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
)
from exo.domain.state import ENDED_KEPT, EndedGeneration, Generation, State


def queued(state: State, event: GenerationQueued) -> State:
    """One more generation waits."""
    generation = Generation(
        task_id=event.task_id,
        model_id=event.model_id,
        key=event.key,
        reply_to=event.reply_to,
        queued_at=state.time,
        queued_position=state.position,
        log_output=event.prompt is not None,
    )
    return state.model_copy(update={"generations": state.generations.set(event.task_id, generation)})


def dispatched(state: State, event: GenerationDispatched) -> State:
    """It is with the processes that the instance's runners are now."""
    generation = state.generations.get(event.task_id)
    instance = state.instances.get(event.instance_id)
    if generation is None or instance is None:
        return state
    changes = {
        "instance_id": event.instance_id,
        "dispatched_at": state.time,
        "processes": tuple(state.runners[runner_id].process for runner_id in instance.runner_ids),
    }
    return _with(state, generation.model_copy(update=changes))


def cancellation_requested(state: State, event: CancellationRequested) -> State:
    """It is to stop."""
    generation = state.generations.get(event.task_id)
    if generation is None:
        return state
    return _with(state, generation.model_copy(update={"cancel_requested_at": state.time}))


def finished(state: State, event: GenerationFinished) -> State:
    """It moves from the live ones to the bounded tail of ended ones."""
    generation = state.generations.get(event.task_id)
    if generation is None:
        return state
    ended = EndedGeneration(
        task_id=event.task_id,
        model_id=generation.model_id,
        key=generation.key,
        finish_reason=event.finish_reason,
        usage=event.usage,
        timings=event.timings,
        queued_at=generation.queued_at,
        ended_at=state.time,
        error=event.error,
    )
    changes = {
        "generations": state.generations.delete(event.task_id),
        "ended": (*state.ended, ended)[-ENDED_KEPT:],
    }
    return state.model_copy(update=changes)


def _with(state: State, generation: Generation) -> State:
    return state.model_copy(update={"generations": state.generations.set(generation.task_id, generation)})
