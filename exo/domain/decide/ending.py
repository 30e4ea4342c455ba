"""The events that end things together with all that depends on them."""

from collections.abc import Collection, Sequence
from typing import Literal

from exo.domain.ids import InstanceId, ModelId, NodeId
from exo.domain.instance import Instance
from exo.domain.messages.events import (
    CancellationRequested,
    Event,
    GenerationFinished,
    InstanceDeleted,
    InstanceFailed,
    InstancesUnlinked,
    NodeLost,
    RemovalFailed,
)
from exo.domain.state import Generation, State, generations_on, instances_of


def end_generations(
    generations: list[Generation], finish_reason: Literal["cancelled", "error"], code: str, error: str
) -> list[Event]:
    """Each of them over, for one reason."""
    return [
        GenerationFinished(task_id=generation.task_id, finish_reason=finish_reason, code=code, error=error)
        for generation in generations
    ]


def cancel_generation(generation: Generation, reason: str) -> list[Event]:
    """A queued one is over at once; a running one is asked to stop."""
    if generation.instance_id is None:
        return end_generations([generation], "cancelled", "cancelled", reason)
    return [CancellationRequested(task_id=generation.task_id, reason=reason)]


def fail_instances(state: State, instances: Sequence[Instance], reason: str) -> list[Event]:
    """The instances given up, and every generation on them ended. `dispatch` sees to those that wait for the model."""
    events = unlink(state, [instance.instance_id for instance in instances], f"one of them failed: {reason}")
    for instance in instances:
        error = f"the model {instance.model_id} failed: {reason}"
        events += end_generations(generations_on(state, instance.instance_id), "error", "model_failed", error)
        events.append(InstanceFailed(instance_id=instance.instance_id, reason=reason))
    return events


def delete_instance(state: State, instance: Instance, reason: str) -> list[Event]:
    """The instance taken away, and every generation on it, or waiting for it alone, cancelled."""
    error = f"the model {instance.model_id} was unloaded: {reason}"
    running = generations_on(state, instance.instance_id)
    is_last = len(instances_of(state, instance.model_id)) == 1
    waiting = waiting_for(state, instance.model_id) if is_last else []
    ended = end_generations(running + waiting, "cancelled", "instance_deleted", error)
    unlinked = unlink(state, [instance.instance_id], f"one of them was unloaded: {reason}")
    return [*ended, *unlinked, InstanceDeleted(instance_id=instance.instance_id, reason=reason)]


def unlink(state: State, instance_ids: Collection[InstanceId], reason: str) -> list[Event]:
    """The links ended that have one of these instances at either end."""
    return [
        InstancesUnlinked(prefill_id=link.prefill_id, decode_id=decode_id, reason=reason)
        for decode_id, link in sorted(state.prefill_links.items())
        if decode_id in instance_ids or link.prefill_id in instance_ids
    ]


def lose_node(state: State, node_id: NodeId, reason: str) -> list[Event]:
    """The node gone, with every instance that has a shard on it, and what it was to delete. What is queued waits for
    another place."""
    here = [instance for _, instance in sorted(state.instances.items()) if node_id in instance.node_ids]
    events = unlink(state, [instance.instance_id for instance in here], f"the node of one of them was lost: {reason}")
    for instance in here:
        running = generations_on(state, instance.instance_id)
        events += end_generations(running, "error", "node_lost", f"the node that ran this was lost: {reason}")
        events.append(InstanceDeleted(instance_id=instance.instance_id, reason=f"its node was lost: {reason}"))
    node = state.nodes.get(node_id)
    lost = f"its node was lost: {reason}"
    kept = [RemovalFailed(node_id=node_id, model_id=one, reason=lost) for one in sorted(node.removals if node else ())]
    return [*events, *kept, NodeLost(node_id=node_id, reason=reason)]


def waiting_for(state: State, model_id: ModelId) -> list[Generation]:
    """The queued generations of a model, in the order of the queue."""
    found = (
        generation
        for generation in state.generations.values()
        if generation.instance_id is None and generation.model_id == model_id
    )
    return sorted(found, key=lambda generation: generation.queued_position)
