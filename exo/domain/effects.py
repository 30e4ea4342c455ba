"""What the master does to the outside because of events that are recorded. Each may be done twice without harm."""

from dataclasses import dataclass

from exo.domain.ids import InstanceId
from exo.domain.instance import Instance
from exo.domain.messages.events import (
    CancellationRequested,
    Event,
    GenerationDispatched,
    InstanceDeleted,
    InstanceFailed,
    RunnerJoining,
)
from exo.domain.messages.tasks import CancelTask, ConnectTask, GenerateTask, Task
from exo.domain.prefill_sources import source_for
from exo.domain.runner_status import Joining
from exo.domain.state import Generation, State


@dataclass(frozen=True, slots=True)
class PublishTask:
    """Tell an instance's runners something."""

    instance_id: InstanceId
    task: Task


@dataclass(frozen=True, slots=True)
class PurgeTasks:
    """Forget the tasks of an instance that is gone."""

    instance_id: InstanceId


Effect = PublishTask | PurgeTasks


def effects(state: State, event: Event) -> list[Effect]:
    """What follows from one event. `state` is the state after it, or after later events."""
    match event:
        case GenerationDispatched():
            generation = state.generations.get(event.task_id)
            return [generate(state, generation)] if generation else []
        case CancellationRequested():
            generation = state.generations.get(event.task_id)
            return [cancel(generation)] if generation else []
        case RunnerJoining():
            runner = state.runners.get(event.runner_id)
            return connect(state, state.instances[runner.instance_id]) if runner else []
        case InstanceDeleted() | InstanceFailed():
            return [PurgeTasks(event.instance_id)]
        case _:
            return []


def outstanding(state: State) -> list[Effect]:
    """Everything that a master that takes over must make sure has been done: it may have died between log and task."""
    live = sorted(state.generations.values(), key=lambda generation: generation.queued_position)
    running = [generation for generation in live if generation.instance_id is not None]
    cancelling = [generation for generation in running if generation.cancel_requested_at is not None]
    connecting = [effect for _, instance in sorted(state.instances.items()) for effect in connect(state, instance)]
    generating = [generate(state, generation) for generation in running]
    return [*connecting, *generating, *map(cancel, cancelling)]


def connect(state: State, instance: Instance) -> list[Effect]:
    """The task that makes a group of an instance's ranks, once each has a process that waits for its peers."""
    runners = [state.runners[one] for one in instance.runner_ids if one in state.runners]
    ports = [runner.status.port for runner in runners if isinstance(runner.status, Joining)]
    if len(ports) < len(instance.shards):
        return []
    processes = tuple(runner.process for runner in runners)
    addresses = tuple(f"{shard.host}:{port}" for shard, port in zip(instance.shards, ports, strict=True))
    return [PublishTask(instance.instance_id, ConnectTask(processes=processes, addresses=addresses))]


def generate(state: State, generation: Generation) -> PublishTask:
    """The task of a generation that was dispatched. Published again later it may name another instance for prefill; the
    runner takes the first."""
    instance_id = _instance(generation)
    task = GenerateTask(
        task_id=generation.task_id,
        reply_to=generation.reply_to,
        processes=generation.processes,
        log_output=generation.log_output,
        prefill=source_for(state, instance_id),
    )
    return PublishTask(instance_id, task)


def cancel(generation: Generation) -> PublishTask:
    """The task that stops a generation that was dispatched."""
    return PublishTask(_instance(generation), CancelTask(task_id=generation.task_id))


def _instance(generation: Generation) -> InstanceId:
    if generation.instance_id is None:
        raise ValueError(f"generation {generation.task_id} is not dispatched")
    return generation.instance_id
