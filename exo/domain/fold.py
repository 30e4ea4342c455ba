"""The fold: State and one more event give the next State."""

from typing import assert_never

from exo.domain import fold_cluster, fold_generations
from exo.domain.messages.events import (
    CancellationRequested,
    CommandRejected,
    Compacted,
    DownloadFailed,
    DownloadFinished,
    DownloadStarted,
    Entry,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    InstanceDeleted,
    InstanceFailed,
    InstancePlaced,
    MasterElected,
    NodeChanged,
    NodeJoined,
    NodeLost,
    Recorded,
    RunnerFailed,
    RunnerLoading,
    RunnerReady,
    RunnerStarted,
    RunnerStopped,
    RunnerWarming,
)
from exo.domain.state import State
from exo.errors import ExoError


class OutOfOrder(ExoError):  # noqa: N818  (the design's word)
    """An event came that is not the next one."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"expected the event at position {expected}, got the one at {got}")
        self.expected = expected
        self.got = got


def fold(state: State, recorded: Recorded) -> State:
    """The state after one more event. Pure: no clock, no I/O. Raises OutOfOrder unless the position is the next one."""
    if recorded.position != state.position + 1:
        raise OutOfOrder(state.position + 1, recorded.position)
    moved = state.model_copy(update={"position": recorded.position, "time": recorded.entry.recorded_at})
    return _apply(moved, recorded.entry)


def _apply(state: State, entry: Entry) -> State:
    match entry.event:
        case MasterElected() as event:
            return state.model_copy(update={"epoch": event.epoch, "master": event.node_id})
        case NodeJoined() as event:
            return fold_cluster.node_joined(state, event)
        case NodeChanged() as event:
            return fold_cluster.node_changed(state, event)
        case NodeLost() as event:
            return fold_cluster.node_lost(state, event)
        case DownloadStarted() as event:
            return fold_cluster.download_started(state, event)
        case DownloadFinished() as event:
            return fold_cluster.download_finished(state, event)
        case DownloadFailed() as event:
            return fold_cluster.download_failed(state, event)
        case InstancePlaced() as event:
            return fold_cluster.instance_placed(state, event)
        case InstanceDeleted() as event:
            return fold_cluster.without_instance(state, event.instance_id)
        case InstanceFailed() as event:
            return fold_cluster.instance_failed(state, event)
        case (
            RunnerStarted()
            | RunnerLoading()
            | RunnerWarming()
            | RunnerReady()
            | RunnerFailed()
            | RunnerStopped() as event
        ):
            return fold_cluster.runner_moved(state, event)
        case GenerationQueued() as event:
            return fold_generations.queued(state, event)
        case GenerationDispatched() as event:
            return fold_generations.dispatched(state, event)
        case CancellationRequested() as event:
            return fold_generations.cancellation_requested(state, event)
        case GenerationFinished() as event:
            return fold_generations.finished(state, event)
        case CommandRejected() | Compacted():
            return state
        case _:
            assert_never(entry.event)
