"""Events in plain words."""

from collections.abc import Mapping
from typing import assert_never

from exo.domain.messages.events import (
    CancellationRequested,
    CommandRejected,
    Compacted,
    DownloadCancelled,
    DownloadFailed,
    DownloadFinished,
    DownloadRequested,
    DownloadStarted,
    Event,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    IdleTimeLimited,
    InstanceDeleted,
    InstanceFailed,
    InstancePlaced,
    InstancesLinked,
    InstancesUnlinked,
    KeyCreated,
    KeyRevoked,
    MasterElected,
    ModelAdded,
    ModelForgotten,
    ModelRemoved,
    NodeChanged,
    NodeJoined,
    NodeLinksChanged,
    NodeLost,
    RemovalFailed,
    RemovalRequested,
    RunnerFailed,
    RunnerJoining,
    RunnerLoading,
    RunnerReady,
    RunnerStarted,
    RunnerStopped,
    RunnerWarming,
)
from exo.domain.prefill import PrefillAttempt
from exo.log.explain.entities import short

Hosts = Mapping[str, str]
"""The name of each node's machine, by the node's id."""


def sentence(event: Event, hosts: Hosts) -> str:
    """What an event says, with the figures that it was based on. Ids are cut to what `exo log why` needs of them."""
    match event:
        case MasterElected():
            return f"the master on {host(event.node_id, hosts)} took the lead, epoch {event.epoch}"
        case NodeJoined() | NodeChanged():
            return _node(event)
        case NodeLinksChanged():
            reached = sorted({host(link.to, hosts) for link in event.links})
            return f"{host(event.node_id, hosts)} reaches {', '.join(reached) or 'no other node'}"
        case NodeLost():
            return f"node {host(event.node_id, hosts)} was lost: {event.reason}"
        case DownloadRequested():
            return f"{event.model_id} was asked for on {host(event.node_id, hosts)}"
        case DownloadCancelled():
            return f"{event.model_id} is not asked for on {host(event.node_id, hosts)} any more"
        case DownloadStarted():
            return f"{host(event.node_id, hosts)} began to fetch {event.model_id}"
        case DownloadFinished():
            return f"{host(event.node_id, hosts)} has {event.model_id} on its disk"
        case DownloadFailed():
            return f"{host(event.node_id, hosts)} could not get {event.model_id}: {event.reason}"
        case RemovalRequested() | ModelRemoved() | RemovalFailed():
            return _removal(event, hosts)
        case ModelAdded():
            size = f"{event.card.weight_bytes / 1e9:.1f} GB"
            return f"{event.card.model_id} was made known: {event.card.family}, {event.card.quantization}, {size}"
        case ModelForgotten():
            return f"{event.model_id} was forgotten"
        case InstancePlaced() | InstanceDeleted() | InstanceFailed():
            return _instance(event, hosts)
        case IdleTimeLimited():
            until = "until somebody needs the room" if event.seconds is None else f"{event.seconds:g} s"
            return f"{event.model_id} stays {until} when nobody asks for it"
        case InstancesLinked() | InstancesUnlinked():
            return _link(event)
        case RunnerStarted():
            return f"runner {short(event.runner_id)} was started as process {short(event.process)}"
        case RunnerJoining():
            return f"runner {short(event.runner_id)} waits for its peers"
        case RunnerLoading():
            return f"runner {short(event.runner_id)} reads its weights"
        case RunnerWarming():
            return f"runner {short(event.runner_id)} has its weights and tries itself out"
        case RunnerReady():
            return f"runner {short(event.runner_id)} is ready, {event.tokens_per_second:.1f} tokens/s at warm-up"
        case RunnerFailed():
            return f"runner {short(event.runner_id)} failed: {event.reason}"
        case RunnerStopped():
            return f"runner {short(event.runner_id)} stopped as it was told"
        case GenerationQueued() | GenerationDispatched() | CancellationRequested() | GenerationFinished():
            return _generation(event)
        case KeyCreated() | KeyRevoked():
            return _key(event)
        case CommandRejected():
            return f"{event.command} was refused, {event.code}: {event.reason}"
        case Compacted():
            return "what happened here was dropped to save room"
        case _:
            assert_never(event)


def host(node_id: str, hosts: Hosts) -> str:
    """A node's machine by its name, or the node's id where that is not known."""
    return hosts.get(node_id) or short(node_id)


def _node(event: NodeJoined | NodeChanged) -> str:
    ready = sum(holding.status == "ready" for holding in event.holdings)
    free = f"{event.available_bytes / 1e9:.1f} of {event.facts.memory_bytes / 1e9:.1f} GB free"
    engines = ", ".join(event.facts.engines) or "none"
    did = "joined" if isinstance(event, NodeJoined) else "changed"
    models = f"{ready} of {len(event.holdings)} models on its disk"
    return f"node {short(event.node_id)} on {event.facts.hostname} {did}: {free}, engines {engines}, {models}"


def _removal(event: RemovalRequested | ModelRemoved | RemovalFailed, hosts: Hosts) -> str:
    name = host(event.node_id, hosts)
    match event:
        case RemovalRequested():
            return f"{event.model_id} is to leave the disk of {name}"
        case ModelRemoved():
            return f"{name} deleted {event.model_id} from its disk"
        case RemovalFailed():
            return f"{name} did not delete {event.model_id}: {event.reason}"


def _instance(event: InstancePlaced | InstanceDeleted | InstanceFailed, hosts: Hosts) -> str:
    match event:
        case InstancePlaced():
            one = event.instance
            nodes = ", ".join(host(node_id, hosts) for node_id in one.node_ids)
            size = f"{one.engine}, context {one.context}, {one.slots} slots"
            return f"instance {short(one.instance_id)} of {one.model_id} was placed on {nodes} ({size}): {event.reason}"
        case InstanceDeleted():
            return f"instance {short(event.instance_id)} was taken away: {event.reason}"
        case InstanceFailed():
            return f"instance {short(event.instance_id)} was given up: {event.reason}"


def _key(event: KeyCreated | KeyRevoked) -> str:
    if isinstance(event, KeyRevoked):
        return f"the key {event.key} was revoked, for ever"
    return f"the key {event.key} was made, for {' and '.join(event.scopes)}"


def _link(event: InstancesLinked | InstancesUnlinked) -> str:
    pair = f"instance {short(event.prefill_id)} prefills for instance {short(event.decode_id)}"
    return f"{pair} from now on" if isinstance(event, InstancesLinked) else f"{pair} no more: {event.reason}"


def _generation(
    event: GenerationQueued | GenerationDispatched | CancellationRequested | GenerationFinished,
) -> str:
    name = f"generation {short(event.task_id)}"
    match event:
        case GenerationQueued():
            asked = f"key {event.key}, about {event.estimated_tokens} tokens"
            return f"{name} was queued for {_wanted(event)}: {asked}"
        case GenerationDispatched():
            return f"{name} was given to instance {short(event.instance_id)}"
        case CancellationRequested():
            return f"{name} is to stop: {event.reason}"
        case GenerationFinished():
            return f"{name} ended, {event.finish_reason}: {_ending(event)}"


def _wanted(event: GenerationQueued) -> str:
    return event.model_id if event.gives == "text" else f"{event.gives} of {event.model_id}"


def _ending(event: GenerationFinished) -> str:
    if event.error:
        return f"{event.code}: {event.error}" if event.code else event.error
    usage, times = event.usage, event.timings
    tokens = f"{usage.prompt_tokens} tokens in ({usage.cached_tokens} cached), {usage.completion_tokens} out"
    prefill = "" if event.prefill is None else f"; {_prefilled(event.prefill)}"
    return f"{tokens}; waited {times.wait:.2f} s, prefill {times.prefill:.2f} s, decode {times.decode:.2f} s{prefill}"


def _prefilled(attempt: PrefillAttempt) -> str:
    who = f"instance {short(attempt.instance_id)}"
    if attempt.error:
        return f"{who} was asked to prefill and did not, after {attempt.seconds:.2f} s: {attempt.error}"
    return f"{who} prefilled {attempt.tokens} tokens of it, which took {attempt.seconds:.2f} s of the wait"
