"""Decisions on starting, cancelling and ending generations."""

from exo.domain.decide import ending
from exo.domain.decide.instances import card_of
from exo.domain.decide.queue import refuse_if_full
from exo.domain.messages.commands import CancelGeneration, StartGeneration
from exo.domain.messages.events import Event, GenerationFinished, GenerationQueued
from exo.domain.messages.reports import GenerationEnded
from exo.domain.state import State, recent_failure
from exo.errors import Rejected


def start(state: State, command: StartGeneration, now: float, queue_most: int) -> list[Event]:
    """The generation queued. Raises Rejected where the model is unknown or just failed, or its queue is full."""
    if command.task_id in state.generations or any(one.task_id == command.task_id for one in state.ended):
        raise Rejected(f"a generation '{command.task_id}' exists already", code="duplicate_task")
    card_of(state, command.model_id)
    _refuse_if_failed(state, command, now)
    refuse_if_full(state, command, queue_most)
    return [
        GenerationQueued(
            task_id=command.task_id,
            model_id=command.model_id,
            gives=command.gives,
            estimated_tokens=command.estimated_tokens,
            key=command.key,
            client=command.client,
            reply_to=command.reply_to,
            prompt=command.prompt,
            needs_reader=command.needs_reader,
        )
    ]


def cancel(state: State, command: CancelGeneration) -> list[Event]:
    """A queued generation is over at once; a running one is asked to stop. Raises Rejected where it is neither."""
    generation = state.generations.get(command.task_id)
    if generation is None:
        raise Rejected(f"no generation '{command.task_id}' is queued or running", code="generation_not_found")
    if generation.cancel_requested_at is not None:
        raise Rejected(f"the generation '{command.task_id}' is being cancelled already", code="already_cancelling")
    return ending.cancel_generation(generation, command.reason)


def ended(state: State, report: GenerationEnded) -> list[Event]:
    """The generation over, if it was still this process's."""
    generation = state.generations.get(report.task_id)
    if generation is None or not generation.processes or generation.processes[0] != report.process:
        return []
    return [
        GenerationFinished(
            task_id=report.task_id,
            finish_reason=report.finish_reason,
            usage=report.usage,
            timings=report.timings,
            code=report.code,
            error=report.error,
            output=report.output,
            prefill=report.prefill,
        )
    ]


def _refuse_if_failed(state: State, command: StartGeneration, now: float) -> None:
    failure = recent_failure(state, command.model_id, now)
    if failure is not None:
        raise Rejected(f"the model '{command.model_id}' could not be loaded: {failure.reason}", code="model_failed")
