"""How events about nodes, downloads, instances and runners change State.

Total: an event about something that State does not know leaves it unchanged. Each function gives the fields of State
that are others afterwards.
"""

from typing import assert_never

from immutables import Map

from exo.domain import fold_idle, fold_speeds
from exo.domain.ids import InstanceId
from exo.domain.instance import Instance
from exo.domain.messages.events import (
    DownloadCancelled,
    DownloadFailed,
    DownloadFinished,
    DownloadRequested,
    DownloadStarted,
    InstanceFailed,
    InstancePlaced,
    NodeChanged,
    NodeJoined,
    NodeLinksChanged,
    NodeLost,
    RunnerFailed,
    RunnerJoining,
    RunnerLoading,
    RunnerReady,
    RunnerStarted,
    RunnerStopped,
    RunnerWarming,
)
from exo.domain.runner_status import Connecting, Failed, Joining, Loading, Ready, Stopped, Waiting, Warming
from exo.domain.state import Download, Failure, Node, Runner, State, StateChanges, download_key

RunnerEvent = RunnerStarted | RunnerJoining | RunnerLoading | RunnerWarming | RunnerReady | RunnerFailed | RunnerStopped


def node_joined(state: State, event: NodeJoined, time: float) -> StateChanges:
    """The node is there, and its runners of before are gone: they wait for a process again. What is to leave its disk
    is still to."""
    known = state.nodes.get(event.node_id)
    node = Node(
        node_id=event.node_id,
        boot_id=event.boot_id,
        facts=event.facts,
        available_bytes=event.available_bytes,
        holdings=Map({holding.card.model_id: holding for holding in event.holdings}),
        joined_at=time,
        damaged=event.damaged,
        removals=known.removals if known else Map(),
    )
    runners = state.runners
    for runner in state.runners.values():
        if runner.node_id == event.node_id:
            reset = Runner(
                runner_id=runner.runner_id,
                instance_id=runner.instance_id,
                node_id=runner.node_id,
                status=Waiting(),
                since=time,
            )
            runners = runners.set(runner.runner_id, reset)
    again = {"status": "requested", "since": time}
    downloads = Map(
        {
            key: one.replaced(again) if one.node_id == event.node_id else one
            for key, one in state.downloads.items()
            if one.requested or one.node_id != event.node_id
        }
    )
    return {"nodes": state.nodes.set(event.node_id, node), "runners": runners, "downloads": downloads}


def node_changed(state: State, event: NodeChanged) -> StateChanges:
    """New facts about a node that is there."""
    node = state.nodes.get(event.node_id)
    if node is None:
        return {}
    holdings = Map({holding.card.model_id: holding for holding in event.holdings})
    changed = node.replaced(
        {
            "facts": event.facts,
            "available_bytes": event.available_bytes,
            "holdings": holdings,
            "damaged": event.damaged,
        }
    )
    return {"nodes": state.nodes.set(event.node_id, changed)}


def node_links_changed(state: State, event: NodeLinksChanged) -> StateChanges:
    """Other links from a node that is there."""
    node = state.nodes.get(event.node_id)
    return {"nodes": state.nodes.set(event.node_id, node.replaced({"links": event.links}))} if node else {}


def node_lost(state: State, event: NodeLost) -> StateChanges:
    """The node is gone. Its instances were failed by events before this one."""
    if event.node_id not in state.nodes:
        return {}
    downloads = Map({key: one for key, one in state.downloads.items() if one.node_id != event.node_id})
    return {"nodes": state.nodes.delete(event.node_id), "downloads": downloads}


def download_requested(state: State, event: DownloadRequested, time: float) -> StateChanges:
    """A download that goes on by itself, or is to begin."""
    key = download_key(event.node_id, event.model_id)
    known = state.downloads.get(key)
    if known is not None and known.status == "running":
        return {"downloads": state.downloads.set(key, known.replaced({"requested": True}))}
    wanted = Download(node_id=event.node_id, model_id=event.model_id, since=time, status="requested", requested=True)
    return {"downloads": state.downloads.set(key, wanted)}


def download_cancelled(state: State, event: DownloadCancelled) -> StateChanges:
    """A download that goes on only where an instance needs it."""
    key = download_key(event.node_id, event.model_id)
    known = state.downloads.get(key)
    if known is None:
        return {}
    if known.status == "requested":
        return {"downloads": state.downloads.delete(key)}
    return {"downloads": state.downloads.set(key, known.replaced({"requested": False}))}


def download_started(state: State, event: DownloadStarted, time: float) -> StateChanges:
    """A download runs."""
    key = download_key(event.node_id, event.model_id)
    known = state.downloads.get(key)
    requested = known is not None and known.requested
    download = Download(node_id=event.node_id, model_id=event.model_id, since=time, requested=requested)
    return {"downloads": state.downloads.set(key, download)}


def download_failed(state: State, event: DownloadFailed, time: float) -> StateChanges:
    """A download is over without the model."""
    key = download_key(event.node_id, event.model_id)
    failed = Download(node_id=event.node_id, model_id=event.model_id, since=time, status="failed", reason=event.reason)
    return {"downloads": state.downloads.set(key, failed)}


def download_finished(state: State, event: DownloadFinished) -> StateChanges:
    """The node holds the model."""
    key = download_key(event.node_id, event.model_id)
    changes: StateChanges = {"downloads": state.downloads.delete(key)} if key in state.downloads else {}
    node = state.nodes.get(event.node_id)
    holding = node.holdings.get(event.model_id) if node else None
    if node is not None and holding is not None:
        ready = node.holdings.set(event.model_id, holding.replaced({"status": "ready"}))
        changes["nodes"] = state.nodes.set(event.node_id, node.replaced({"holdings": ready}))
    return changes


def instance_placed(state: State, event: InstancePlaced, time: float) -> StateChanges:
    """The instance is there and its runners wait for their processes."""
    runners = state.runners
    for shard in event.instance.shards:
        runner = Runner(
            runner_id=shard.runner_id,
            instance_id=event.instance.instance_id,
            node_id=shard.node_id,
            status=Waiting(),
            since=time,
        )
        runners = runners.set(shard.runner_id, runner)
    instances = state.instances.set(event.instance.instance_id, event.instance)
    return {"instances": instances, "runners": runners}


def without_instance(state: State, instance_id: InstanceId) -> StateChanges:
    """The instance is gone with its runners. Its generations were ended by events before this one."""
    instance = state.instances.get(instance_id)
    if instance is None:
        return {}
    runners = state.runners
    for runner_id in instance.runner_ids:
        runners = runners.delete(runner_id)
    changes = fold_idle.unloaded(state, instance.model_id)
    changes["instances"], changes["runners"] = state.instances.delete(instance_id), runners
    return changes


def instance_failed(state: State, event: InstanceFailed, time: float) -> StateChanges:
    """The instance is gone, and why is remembered for whoever asks for the model next."""
    instance = state.instances.get(event.instance_id)
    if instance is None:
        return {}
    failure = Failure(reason=event.reason, at=time)
    gone = without_instance(state, event.instance_id)
    gone["failures"] = state.failures.set(instance.model_id, failure)
    return gone


def runner_moved(state: State, event: RunnerEvent, time: float) -> StateChanges:
    """The runner is in its new status."""
    runner = state.runners.get(event.runner_id)
    if runner is None:
        return {}
    moved = runner.replaced({"since": time, **_runner_changes(runner, event)})
    changes: StateChanges = {"runners": state.runners.set(event.runner_id, moved)}
    if event.type == "RunnerReady":
        changes.update(_ready(state, state.instances[runner.instance_id], event.tokens_per_second, time))
    return changes


def _ready(state: State, instance: Instance, tokens_per_second: float, time: float) -> StateChanges:
    model_id = instance.model_id
    changes = fold_idle.used(state, model_id, time)
    changes["speeds"] = fold_speeds.measured(state, instance, tokens_per_second)
    if model_id in state.failures:
        changes["failures"] = state.failures.delete(model_id)
    return changes


def _runner_changes(runner: Runner, event: RunnerEvent) -> dict[str, object]:
    match event.type:
        case "RunnerStarted":
            return {"status": Connecting(), "process": event.process}
        case "RunnerJoining":
            return {"status": Joining(port=event.port)}
        case "RunnerLoading":
            return {"status": Loading()}
        case "RunnerWarming":
            return {"status": Warming()}
        case "RunnerReady":
            return {"status": Ready(tokens_per_second=event.tokens_per_second), "failures": 0}
        case "RunnerFailed":
            failed = Failed(reason=event.reason)
            return {"status": failed, "failures": runner.failures + 1, "retry_at": event.retry_at}
        case "RunnerStopped":
            return {"status": Stopped()}
        case _:
            assert_never(event)
