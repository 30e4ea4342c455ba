"""What time alone brings about: deadlines, lost nodes, and queued work that can go on."""

from collections.abc import Callable, Mapping

from exo.domain import limits
from exo.domain.decide import ending
from exo.domain.decide.runners import fail_runner
from exo.domain.dispatch import dispatch
from exo.domain.fold import fold
from exo.domain.ids import ModelId, NodeId, TaskId
from exo.domain.messages.events import (
    CancellationRequested,
    DownloadFailed,
    Entry,
    Event,
    IdleTimeLimited,
    Recorded,
    RemovalFailed,
)
from exo.domain.runner_status import Connecting, Failed, Joining, Loading, Stopped, Waiting, Warming
from exo.domain.state import Generation, IdleLimit, Runner, State, host_of, instances_of, is_ready

_RUNNER_DEADLINES: dict[type, float] = {
    Waiting: limits.RUNNER_WAITING,
    Connecting: limits.RUNNER_CONNECTING,
    Joining: limits.RUNNER_JOINING,
    Loading: limits.RUNNER_LOADING,
    Warming: limits.RUNNER_WARMING,
    Failed: limits.RUNNER_WAITING,
    Stopped: limits.RUNNER_WAITING,
}


def advance(
    state: State,
    now: float,
    new_id: Callable[[], str],
    last_beats: Mapping[NodeId, float],
    last_read: Mapping[TaskId, float],
) -> list[Event]:
    """The events that are due at `now`, seconds since the epoch.

    `last_beats` says when each node was last seen alive, `last_read` when an API process that reads a generation was.
    What they do not name is given the benefit of the doubt, so that a master that has just taken over, or has just got
    NATS back, loses nobody.
    """
    events: list[Event] = []
    for node_id in _silent_nodes(state, now, last_beats):
        reason = f"no sign of life for {limits.NODE_SILENT:.0f} s"
        events += ending.lose_node(after(state, events, now), node_id, reason)
    events += _overdue_runner(after(state, events, now), now)
    events += _overdue_generations(after(state, events, now), now)
    events += _unread_generations(after(state, events, now), now, last_read)
    events += _overdue_downloads(after(state, events, now), now)
    events += _overdue_removals(after(state, events, now), now)
    events += dispatch(after(state, events, now), now, new_id)
    events += _idle_models(after(state, events, now), now)
    return events


def after(state: State, events: list[Event], now: float) -> State:
    """The state that follows once `events` are recorded."""
    for event in events:
        entry = Entry(recorded_at=now, cause_id=None, source="", event=event)
        state = fold(state, Recorded(position=state.position + 1, entry=entry))
    return state


def _silent_nodes(state: State, now: float, last_beats: Mapping[NodeId, float]) -> list[NodeId]:
    return [node_id for node_id in sorted(state.nodes) if now - last_beats.get(node_id, now) > limits.NODE_SILENT]


def _overdue_runner(state: State, now: float) -> list[Event]:
    """At most one: failing it may take others with it."""
    for runner in sorted(state.runners.values(), key=lambda runner: runner.runner_id):
        allowed = _RUNNER_DEADLINES.get(type(runner.status))
        if allowed is not None and now - runner.since > allowed:
            return fail_runner(state, runner, Failed(reason=_overdue_reason(state, runner, allowed)), now)
    return []


def _overdue_reason(state: State, runner: Runner, allowed: float) -> str:
    if isinstance(runner.status, Joining):
        return f"it waited for its peers for more than {allowed:.0f} s: {_missing(state, runner)}"
    return f"the runner was {runner.status.type} for more than {allowed:.0f} s"


def _missing(state: State, waiting: Runner) -> str:
    """Which ranks a runner waits for, and what they are at."""
    shards = state.instances[waiting.instance_id].shards
    missing = [
        f"rank {shard.rank} on {host_of(state, shard.node_id)} is {status.type}"
        for shard in shards
        if not isinstance(status := state.runners[shard.runner_id].status, Joining)
    ]
    addresses = ", ".join(shard.host for shard in shards)
    return "; ".join(missing) or f"all are there, and do not reach each other at {addresses}"


def _overdue_generations(state: State, now: float) -> list[Event]:
    events: list[Event] = []
    for generation in sorted(state.generations.values(), key=lambda generation: generation.queued_position):
        events += _overdue(generation, now)
    return events


def _unread_generations(state: State, now: float, last_read: Mapping[TaskId, float]) -> list[Event]:
    """The end of those that nobody would miss."""
    reason = f"the API process that asked is gone, and nobody has read it for {limits.UNREAD:.0f} s"
    return [
        event
        for generation in sorted(state.generations.values(), key=lambda generation: generation.queued_position)
        if generation.needs_reader and generation.cancel_requested_at is None
        # An API process may ask before it has ever shown that it lives.
        if now - max(generation.queued_at, last_read.get(generation.task_id, now)) > limits.UNREAD
        for event in ending.cancel_generation(generation, reason)
    ]


def _overdue_downloads(state: State, now: float) -> list[Event]:
    """Those that their workers have not begun. One that runs is watched by its worker."""
    reason = f"its worker did not begin within {limits.RUNNER_WAITING:.0f} s"
    return [
        DownloadFailed(node_id=one.node_id, model_id=one.model_id, reason=reason)
        for _, one in sorted(state.downloads.items())
        if one.status == "requested" and now - one.since > limits.RUNNER_WAITING
    ]


def _overdue_removals(state: State, now: float) -> list[Event]:
    reason = f"its worker did not say within {limits.REMOVING:.0f} s that it is deleted"
    return [
        RemovalFailed(node_id=node_id, model_id=model_id, reason=reason)
        for node_id, node in sorted(state.nodes.items())
        for model_id, since in sorted(node.removals.items())
        if now - since > limits.REMOVING
    ]


def _idle_models(state: State, now: float) -> list[Event]:
    """The end of models that nobody has asked for as long as somebody said."""
    asked_for = {generation.model_id for generation in state.generations.values()}
    return [
        event
        for model_id, limit in sorted(state.idle_limits.items())
        if model_id not in asked_for and now - limit.since >= limit.seconds
        for event in _unload(state, model_id, limit, now)
    ]


def _unload(state: State, model_id: ModelId, limit: IdleLimit, now: float) -> list[Event]:
    """Its instances taken away. Where it never came to any, its limit, so that it does not bind whoever asks later."""
    instances = instances_of(state, model_id)
    if not instances:
        is_over = now - limit.since >= limits.IDLE_UNPLACED
        return [IdleTimeLimited(model_id=model_id, seconds=None)] if is_over else []
    reason = f"nobody asked for it for {limit.seconds:g} s"
    events: list[Event] = []
    for instance in instances:
        if is_ready(state, instance):
            events += ending.delete_instance(after(state, events, now), instance, reason)
    return events


def _overdue(generation: Generation, now: float) -> list[Event]:
    if generation.instance_id is None:
        if now - generation.queued_at <= limits.QUEUED:
            return []
        error = f"the request waited more than {limits.QUEUED:.0f} s for '{generation.model_id}'"
        return ending.end_generations([generation], "error", "queue_timeout", error)
    if generation.cancel_requested_at is None:
        if now - generation.dispatched_at <= limits.RUNNING:
            return []
        reason = f"it ran for more than {limits.RUNNING:.0f} s"
        return [CancellationRequested(task_id=generation.task_id, reason=reason)]
    if now - generation.cancel_requested_at <= limits.CANCELLING:
        return []
    error = f"the runner did not confirm the cancellation within {limits.CANCELLING:.0f} s"
    return ending.end_generations([generation], "cancelled", "cancelled", error)
