"""What the cluster is doing, in words: for the log, and for who waits for a model."""

import logging
from collections.abc import Iterable

from exo.api.loading import Loading
from exo.domain.ids import ModelId, RunnerId, TaskId
from exo.domain.instance import Instance
from exo.domain.messages.events import (
    DownloadFailed,
    DownloadStarted,
    InstanceFailed,
    Recorded,
    RunnerFailed,
    RunnerJoining,
    RunnerLoading,
    RunnerReady,
    RunnerStarted,
    RunnerWarming,
)
from exo.domain.state import State, host_of, instances_of, is_ready

logger = logging.getLogger(__name__)


def log_progress(state: State, recorded: Recorded | None) -> None:
    """A listener of the replica: one line for each step of a model on its way to readiness."""
    match recorded.entry.event if recorded else None:
        case DownloadStarted() as event:
            logger.info("%s: being prepared on %s", event.model_id, host_of(state, event.node_id))
        case DownloadFailed() as event:
            logger.warning("%s: cannot be had on %s: %s", event.model_id, host_of(state, event.node_id), event.reason)
        case RunnerStarted() as event:
            logger.info("%s: starting", _runner(state, event.runner_id))
        case RunnerJoining() as event:
            logger.info("%s: waiting for its peers", _runner(state, event.runner_id))
        case RunnerLoading() as event:
            logger.info("%s: loading", _runner(state, event.runner_id))
        case RunnerWarming() as event:
            logger.info("%s: warming up", _runner(state, event.runner_id))
        case RunnerReady() as event:
            speed = event.tokens_per_second
            logger.info("%s: ready, %.0f tokens a second", _runner(state, event.runner_id), speed)
        case RunnerFailed() as event:
            logger.warning("%s: failed: %s", _runner(state, event.runner_id), event.reason)
        case InstanceFailed() as event:
            logger.warning("instance %s is given up: %s", event.instance_id, event.reason)
        case _:
            pass


def waiting_for(state: State, model_id: ModelId, task_id: TaskId, loading: Loading) -> str:
    """What a generation waits for, in a few words without a line break."""
    generation = state.generations.get(task_id)
    if generation is not None and generation.instance_id is not None:
        return "prefill"
    instances = instances_of(state, model_id)
    if not instances:
        return f"waiting for a place for {model_id}"
    if any(is_ready(state, instance) for instance in instances):
        return f"waiting for a free slot of {model_id}"
    return f"waiting for {model_id}: {', '.join(statuses_of(state, instances, loading))}"


def statuses_of(state: State, instances: Iterable[Instance], loading: Loading) -> list[str]:
    """What the instances' runners are at, sorted, each once: `connecting`, `loading 12 of 30 layers`."""
    return sorted({status for instance in instances for status in _statuses(state, instance, loading)})


def _statuses(state: State, instance: Instance, loading: Loading) -> set[str]:
    statuses = {state.runners[runner_id].status.type for runner_id in instance.runner_ids}
    layers = loading.describe(state, instance)
    return {f"{status} {layers}" if status == "loading" and layers else status for status in statuses}


def _runner(state: State, runner_id: RunnerId) -> str:
    runner = state.runners.get(runner_id)
    instance = state.instances.get(runner.instance_id) if runner else None
    if runner is None or instance is None:
        return f"runner {runner_id}"
    return f"{instance.model_id} on {host_of(state, runner.node_id)}"
