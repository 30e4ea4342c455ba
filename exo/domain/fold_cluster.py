"""How events about nodes, downloads, instances and runners change State.

Total: an event about something that State does not know leaves it unchanged.
"""

from typing import assert_never

from immutables import Map

from exo.domain.ids import InstanceId, RunnerId
from exo.domain.messages.events import (
    DownloadFailed,
    DownloadFinished,
    DownloadStarted,
    InstanceFailed,
    InstancePlaced,
    NodeChanged,
    NodeJoined,
    NodeLost,
    RunnerFailed,
    RunnerLoading,
    RunnerReady,
    RunnerStarted,
    RunnerStopped,
    RunnerWarming,
)
from exo.domain.runner_status import Connecting, Failed, Loading, Ready, Stopped, Waiting, Warming
from exo.domain.state import Download, Failure, Node, Runner, State, download_key

RunnerEvent = RunnerStarted | RunnerLoading | RunnerWarming | RunnerReady | RunnerFailed | RunnerStopped


def node_joined(state: State, event: NodeJoined) -> State:
    """The node is there, and its runners of before are gone: they wait for a process again."""
    node = Node(
        node_id=event.node_id,
        boot_id=event.boot_id,
        facts=event.facts,
        available_bytes=event.available_bytes,
        holdings=Map({holding.card.model_id: holding for holding in event.holdings}),
        joined_at=state.time,
    )
    runners = state.runners
    for runner in state.runners.values():
        if runner.node_id == event.node_id:
            reset = Runner(
                runner_id=runner.runner_id,
                instance_id=runner.instance_id,
                node_id=runner.node_id,
                status=Waiting(),
                since=state.time,
            )
            runners = runners.set(runner.runner_id, reset)
    downloads = Map({key: one for key, one in state.downloads.items() if one.node_id != event.node_id})
    return state.model_copy(
        update={"nodes": state.nodes.set(event.node_id, node), "runners": runners, "downloads": downloads}
    )


def node_changed(state: State, event: NodeChanged) -> State:
    """New facts about a node that is there."""
    node = state.nodes.get(event.node_id)
    if node is None:
        return state
    holdings = Map({holding.card.model_id: holding for holding in event.holdings})
    changed = node.model_copy(
        update={"facts": event.facts, "available_bytes": event.available_bytes, "holdings": holdings}
    )
    return state.model_copy(update={"nodes": state.nodes.set(event.node_id, changed)})


def node_lost(state: State, event: NodeLost) -> State:
    """The node is gone. Its instances were failed by events before this one."""
    if event.node_id not in state.nodes:
        return state
    downloads = Map({key: one for key, one in state.downloads.items() if one.node_id != event.node_id})
    return state.model_copy(update={"nodes": state.nodes.delete(event.node_id), "downloads": downloads})


def download_started(state: State, event: DownloadStarted) -> State:
    """A download runs."""
    download = Download(node_id=event.node_id, model_id=event.model_id, since=state.time)
    key = download_key(event.node_id, event.model_id)
    return state.model_copy(update={"downloads": state.downloads.set(key, download)})


def download_failed(state: State, event: DownloadFailed) -> State:
    """A download is over without the model."""
    key = download_key(event.node_id, event.model_id)
    failed = Download(
        node_id=event.node_id, model_id=event.model_id, since=state.time, status="failed", reason=event.reason
    )
    return state.model_copy(update={"downloads": state.downloads.set(key, failed)})


def download_finished(state: State, event: DownloadFinished) -> State:
    """The node holds the model."""
    key = download_key(event.node_id, event.model_id)
    if key in state.downloads:
        state = state.model_copy(update={"downloads": state.downloads.delete(key)})
    node = state.nodes.get(event.node_id)
    holding = node.holdings.get(event.model_id) if node else None
    if node is None or holding is None:
        return state
    ready = holding.model_copy(update={"status": "ready"})
    changed = node.model_copy(update={"holdings": node.holdings.set(event.model_id, ready)})
    return state.model_copy(update={"nodes": state.nodes.set(event.node_id, changed)})


def instance_placed(state: State, event: InstancePlaced) -> State:
    """The instance is there and its runners wait for their processes."""
    runners = state.runners
    for shard in event.instance.shards:
        runner = Runner(
            runner_id=shard.runner_id,
            instance_id=event.instance.instance_id,
            node_id=shard.node_id,
            status=Waiting(),
            since=state.time,
        )
        runners = runners.set(shard.runner_id, runner)
    instances = state.instances.set(event.instance.instance_id, event.instance)
    return state.model_copy(update={"instances": instances, "runners": runners})


def without_instance(state: State, instance_id: InstanceId) -> State:
    """The instance is gone with its runners. Its generations were ended by events before this one."""
    instance = state.instances.get(instance_id)
    if instance is None:
        return state
    runners = state.runners
    for runner_id in instance.runner_ids:
        runners = runners.delete(runner_id)
    return state.model_copy(update={"instances": state.instances.delete(instance_id), "runners": runners})


def instance_failed(state: State, event: InstanceFailed) -> State:
    """The instance is gone, and why is remembered for whoever asks for the model next."""
    instance = state.instances.get(event.instance_id)
    if instance is None:
        return state
    failure = Failure(reason=event.reason, at=state.time)
    state = state.model_copy(update={"failures": state.failures.set(instance.model_id, failure)})
    return without_instance(state, event.instance_id)


def runner_moved(state: State, event: RunnerEvent) -> State:
    """The runner is in its new status."""
    runner = state.runners.get(event.runner_id)
    if runner is None:
        return state
    moved = runner.model_copy(update={"since": state.time, **_runner_changes(runner, event)})
    state = state.model_copy(update={"runners": state.runners.set(event.runner_id, moved)})
    return _without_failure(state, event.runner_id) if isinstance(event, RunnerReady) else state


def _runner_changes(runner: Runner, event: RunnerEvent) -> dict[str, object]:
    match event:
        case RunnerStarted():
            return {"status": Connecting(), "process": event.process}
        case RunnerLoading():
            return {"status": Loading()}
        case RunnerWarming():
            return {"status": Warming()}
        case RunnerReady():
            return {"status": Ready(tokens_per_second=event.tokens_per_second), "failures": 0}
        case RunnerFailed():
            failed = Failed(reason=event.reason)
            return {"status": failed, "failures": runner.failures + 1, "retry_at": event.retry_at}
        case RunnerStopped():
            return {"status": Stopped()}
        case _:
            assert_never(event)


def _without_failure(state: State, runner_id: RunnerId) -> State:
    model_id = state.instances[state.runners[runner_id].instance_id].model_id
    if model_id not in state.failures:
        return state
    return state.model_copy(update={"failures": state.failures.delete(model_id)})
