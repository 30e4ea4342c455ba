"""The fold: State and one more event give the next State."""

from typing import assert_never

from exo.domain import fold_cluster, fold_generations, fold_idle, fold_keys, fold_links, fold_models
from exo.domain.messages.events import Event, Recorded
from exo.domain.state import State, StateChanges
from exo.errors import ExoError


class OutOfOrder(ExoError):  # noqa: N818  (the design's word)
    """An event came that is not the next one."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"expected the event at position {expected}, got the one at {got}")
        self.expected = expected
        self.got = got


def fold(state: State, recorded: Recorded) -> State:
    """The state after one more event. Pure: no clock, no I/O. Raises OutOfOrder unless the position is the next one."""
    return fold_event(state, recorded.position, recorded.entry.recorded_at, recorded.entry.event)


def fold_event(state: State, position: int, time: float, event: Event) -> State:
    """As `fold`, of an event that was recorded at `time`, for a replay of very many that needs no more of them."""
    if position != state.position + 1:
        raise OutOfOrder(state.position + 1, position)
    changes = _changes(state, event, position, time)
    changes["position"], changes["time"] = position, time
    return state.replaced(changes)


def _changes(state: State, event: Event, position: int, time: float) -> StateChanges:
    # By the type's name, because a class that does not match costs four times as much. Nearly all are generations'.
    match event.type:
        case "GenerationQueued":
            return fold_generations.queued(state, event, position, time)
        case "GenerationDispatched":
            return fold_generations.dispatched(state, event, time)
        case "GenerationFinished":
            return fold_generations.finished(state, event, time)
        case "CancellationRequested":
            return fold_generations.cancellation_requested(state, event, time)
        case "CommandRejected" | "Compacted":
            return {}
        case "MasterElected":
            return {"epoch": event.epoch, "master": event.node_id}
        case "NodeJoined":
            return fold_cluster.node_joined(state, event, time)
        case "NodeChanged":
            return fold_cluster.node_changed(state, event)
        case "NodeLinksChanged":
            return fold_cluster.node_links_changed(state, event)
        case "NodeLost":
            return fold_cluster.node_lost(state, event)
        case "DownloadRequested":
            return fold_cluster.download_requested(state, event, time)
        case "DownloadCancelled":
            return fold_cluster.download_cancelled(state, event)
        case "DownloadStarted":
            return fold_cluster.download_started(state, event, time)
        case "DownloadFinished":
            return fold_cluster.download_finished(state, event)
        case "DownloadFailed":
            return fold_cluster.download_failed(state, event, time)
        case "RemovalRequested" | "ModelRemoved" | "RemovalFailed":
            return fold_models.removal(state, event, time)
        case "ModelAdded" | "ModelForgotten":
            return fold_models.known(state, event)
        case "InstancePlaced":
            return fold_cluster.instance_placed(state, event, time)
        case "InstanceDeleted":
            return fold_cluster.without_instance(state, event.instance_id)
        case "InstanceFailed":
            return fold_cluster.instance_failed(state, event, time)
        case "IdleTimeLimited":
            return fold_idle.limited(state, event, time)
        case "InstancesLinked" | "InstancesUnlinked":
            return fold_links.changed(state, event, time)
        case "RunnerStarted" | "RunnerJoining" | "RunnerLoading" | "RunnerWarming":
            return fold_cluster.runner_moved(state, event, time)
        case "RunnerReady" | "RunnerFailed" | "RunnerStopped":
            return fold_cluster.runner_moved(state, event, time)
        case "KeyCreated" | "KeyRevoked":
            return fold_keys.changed(state, event, time)
        case _:
            assert_never(event)
