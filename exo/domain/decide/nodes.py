"""Decisions on what workers report of their machines."""

from exo.domain import limits
from exo.domain.decide import ending
from exo.domain.decide.runners import fail_others
from exo.domain.ids import ModelId, NodeId
from exo.domain.instance import Instance
from exo.domain.messages.events import (
    DownloadFailed,
    DownloadFinished,
    DownloadStarted,
    Event,
    NodeChanged,
    NodeJoined,
    NodeLinksChanged,
    RunnerStopped,
)
from exo.domain.messages.reports import DownloadSeen, LinksSeen, NodeLeft, NodeSeen
from exo.domain.state import Node, State, generations_on, host_of, is_up


def seen(state: State, report: NodeSeen, now: float) -> list[Event]:
    """A new worker joins, and what ran on an earlier one of the same node is over; a known one may have changed."""
    node = state.nodes.get(report.node_id)
    if node is not None and node.boot_id == report.boot_id:
        return _changed(node, report)
    joined = NodeJoined(
        node_id=report.node_id,
        boot_id=report.boot_id,
        facts=report.facts,
        available_bytes=report.available_bytes,
        holdings=report.holdings,
        damaged=report.damaged,
    )
    peers = f"the worker of another rank, on {host_of(state, report.node_id)}, was restarted"
    ended = _end_all_on(state, report.node_id, "runner_failed", "the worker that ran this generation was restarted")
    return [*ended, *_fail_peers(state, report.node_id, peers, now), joined]


def links_seen(state: State, report: LinksSeen) -> list[Event]:
    """The node's links are others, if its worker is still the one that measured them."""
    node = state.nodes.get(report.node_id)
    if node is None or node.boot_id != report.boot_id or node.links == report.links:
        return []
    return [NodeLinksChanged(node_id=report.node_id, links=report.links)]


def left(state: State, report: NodeLeft, now: float) -> list[Event]:
    """The node's runners stopped, and what ran on them ended, unless a newer worker of it has joined since.

    Its instances stay: it may be stopped for a moment only, and when all of a cluster is stopped, all is to come back.
    If it does not, it is silent, and lost by that.
    """
    node = state.nodes.get(report.node_id)
    if node is None or node.boot_id != report.boot_id:
        return []
    reason = f"the worker on {host_of(state, report.node_id)} was stopped"
    events = _end_all_on(state, report.node_id, "node_lost", reason)
    here = [runner for _, runner in sorted(state.runners.items()) if runner.node_id == report.node_id]
    events += [RunnerStopped(runner_id=runner.runner_id) for runner in here if is_up(runner)]
    return events + _fail_peers(state, report.node_id, reason, now)


def _fail_peers(state: State, node_id: NodeId, reason: str, now: float) -> list[Event]:
    """The ranks elsewhere of what had a rank on a node whose runners are gone."""
    events: list[Event] = []
    for _, instance in sorted(state.instances.items()):
        gone = [shard.runner_id for shard in instance.shards if shard.node_id == node_id]
        if gone:
            events += fail_others(state, instance, gone, reason, now)
    return events


def download_seen(state: State, report: DownloadSeen) -> list[Event]:
    """A model is on its way, there, or not to be had: then what waits for it on that node fails."""
    if report.node_id not in state.nodes:
        return []
    node_id, model_id = report.node_id, report.model_id
    if report.status == "started":
        return [DownloadStarted(node_id=node_id, model_id=model_id)]
    if report.status == "finished":
        return [DownloadFinished(node_id=node_id, model_id=model_id)]
    if report.status == "abandoned":
        return [DownloadFailed(node_id=node_id, model_id=model_id, reason="nobody needed it any more")]
    failed = DownloadFailed(node_id=node_id, model_id=model_id, reason=report.reason)
    return [failed, *ending.fail_instances(state, _waiting_on(state, node_id, model_id), report.reason)]


def _waiting_on(state: State, node_id: NodeId, model_id: ModelId) -> list[Instance]:
    """The instances of a model that have no process on a node yet."""
    runners = sorted(state.runners.values(), key=lambda runner: runner.runner_id)
    waiting = [state.instances[one.instance_id] for one in runners if one.node_id == node_id and not is_up(one)]
    return [instance for instance in waiting if instance.model_id == model_id]


def _changed(node: Node, report: NodeSeen) -> list[Event]:
    holdings = tuple(node.holdings[model_id] for model_id in sorted(node.holdings))
    reported = tuple(sorted(report.holdings, key=lambda holding: holding.card.model_id))
    moved = abs(report.available_bytes - node.available_bytes)
    memory_matters = moved > limits.AVAILABLE_CHANGE * node.facts.memory_bytes
    models_same = reported == holdings and report.damaged == node.damaged
    if report.facts == node.facts and models_same and not memory_matters:
        return []
    changed = NodeChanged(
        node_id=node.node_id,
        facts=report.facts,
        available_bytes=report.available_bytes,
        holdings=report.holdings,
        damaged=report.damaged,
    )
    return [changed]


def _end_all_on(state: State, node_id: NodeId, code: str, error: str) -> list[Event]:
    """Every generation over that ran on a node, or with a rank on it."""
    events: list[Event] = []
    for _, instance in sorted(state.instances.items()):
        if node_id in instance.node_ids:
            events += ending.end_generations(generations_on(state, instance.instance_id), "error", code, error)
    return events
