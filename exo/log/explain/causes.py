"""Who and what an event goes back to: the message that led to it, and the events before it that it rests on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
    Recorded,
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
from exo.log.explain.entities import Entity, short
from exo.log.explain.sentences import Hosts, host

RUNNER_EVENTS = (
    RunnerStarted,
    RunnerJoining,
    RunnerLoading,
    RunnerWarming,
    RunnerReady,
    RunnerFailed,
    RunnerStopped,
)
NODE_EVENTS = (NodeJoined, NodeChanged, NodeLinksChanged, NodeLost)
DOWNLOAD_EVENTS = (DownloadRequested, DownloadCancelled, DownloadStarted, DownloadFinished, DownloadFailed)
REMOVAL_EVENTS = (RemovalRequested, ModelRemoved, RemovalFailed)
INSTANCE_EVENTS = (InstancePlaced, InstanceDeleted, InstanceFailed)
LINK_EVENTS = (InstancesLinked, InstancesUnlinked)
GENERATION_EVENTS = (GenerationQueued, GenerationDispatched, CancellationRequested, GenerationFinished)
KEY_EVENTS = (KeyCreated, KeyRevoked)
MODEL_EVENTS = (ModelAdded, ModelForgotten)
UPSETS = (RunnerFailed, RunnerStopped, DownloadFailed, NodeLost, NodeJoined, InstanceFailed, InstanceDeleted)
"""What ends other things with it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What led to an event."""

    kind: Literal["command", "report", "master"]
    """master: nobody's message, but time: a deadline, queued work, an election."""
    name: str
    """The message's type, as far as the events that it led to show it; empty for the master's own doing."""
    id: str | None
    sender: str
    """The id of an API, a node or a runner."""
    text: str
    """All of it, for people."""


def cause_of(recorded: Recorded, decision: Sequence[Recorded], hosts: Hosts) -> Cause:
    """Where an event comes from. `decision`: all events that had the same cause, in order."""
    entry = recorded.entry
    if entry.cause_id is None:
        text = f"the master on {host(entry.source, hosts)} by itself"
        return Cause("master", "", None, entry.source, text)
    name = _message([one.entry.event for one in decision] or [entry.event])
    kind = "command" if name in _COMMANDS else "report"
    text = f"{kind} {name} {short(entry.cause_id)} from {_sender(name, entry.source, hosts)}"
    return Cause(kind, name, entry.cause_id, entry.source, text)


def subject_of(event: Event) -> Entity:
    """What an event is about, first of all."""
    match event:
        case InstancePlaced():
            return Entity("instance", event.instance.instance_id)
        case InstanceDeleted() | InstanceFailed():
            return Entity("instance", event.instance_id)
        case InstancesLinked() | InstancesUnlinked():
            return Entity("instance", event.decode_id)
        case IdleTimeLimited():
            return Entity("model", event.model_id)
        case DownloadRequested() | DownloadCancelled() | DownloadStarted() | DownloadFinished() | DownloadFailed():
            return Entity("model", event.model_id)
        case RemovalRequested() | ModelRemoved() | RemovalFailed():
            return Entity("model", event.model_id)
        case ModelAdded():
            return Entity("model", event.card.model_id)
        case ModelForgotten():
            return Entity("model", event.model_id)
        case MasterElected() | NodeJoined() | NodeChanged() | NodeLinksChanged() | NodeLost():
            return Entity("node", event.node_id)
        case KeyCreated() | KeyRevoked():
            return Entity("key", event.key)
        case CommandRejected() | Compacted():
            return Entity("command", event.type)
        case GenerationQueued() | GenerationDispatched() | CancellationRequested() | GenerationFinished():
            return Entity("generation", event.task_id)
        case _:
            return Entity("runner", event.runner_id)


def reasons_of(recorded: Recorded, before: Sequence[Recorded], decision: Sequence[Recorded]) -> list[int]:
    """The positions of the events that an event rests on, of those `before` it in a story and in its own `decision`."""
    event, subject = recorded.entry.event, subject_of(recorded.entry.event)
    earlier = [one for one in before if subject_of(one.entry.event) == subject and _same_place(one.entry.event, event)]
    found = [earlier[-1]] if earlier else []
    match event:
        case InstancePlaced():
            model_id = event.instance.model_id
            found += [one for one in before if _asked_for(one.entry.event, model_id)][-1:]
        case RunnerStarted() if not earlier:
            found += [one for one in before if _placed_runner(one.entry.event, event.runner_id)][-1:]
        case DownloadStarted():
            found += [one for one in before if _placed_model(one.entry.event, event.model_id)][-1:]
        case GenerationDispatched():
            found += [one for one in before if isinstance(one.entry.event, RunnerReady)][-1:]
        case GenerationFinished() | InstanceDeleted() | InstanceFailed() | InstancesUnlinked():
            if isinstance(event, GenerationFinished) and event.prefill is not None:
                found += [one for one in before if isinstance(one.entry.event, InstancesLinked)][-1:]
            shown = {one.position for one in before}
            found += [
                one
                for one in decision
                if one.position != recorded.position
                and isinstance(one.entry.event, UPSETS)
                and (one.position in shown or one.position > recorded.position)
            ]
        case _:
            pass
    return sorted({one.position for one in found})


_KEY_COMMANDS = {"CreateKey", "RevokeKey"}
_LINK_COMMANDS = {"LinkInstances", "UnlinkInstances"}
_INSTANCE_COMMANDS = {"PlaceInstance", "DeleteInstance", "StartDownload", "CancelDownload", *_LINK_COMMANDS}
_MODEL_COMMANDS = {"AddModel", "ForgetModel", "RemoveModel", "LimitIdleTime"}
_COMMANDS = {"StartGeneration", "CancelGeneration", *_INSTANCE_COMMANDS, *_KEY_COMMANDS, *_MODEL_COMMANDS}
_BY_FIRST: Mapping[type[Event], str] = {
    GenerationQueued: "StartGeneration",
    InstancePlaced: "PlaceInstance",
    IdleTimeLimited: "LimitIdleTime",
    InstancesLinked: "LinkInstances",
    CancellationRequested: "CancelGeneration",
    KeyCreated: "CreateKey",
    KeyRevoked: "RevokeKey",
    ModelAdded: "AddModel",
    ModelForgotten: "ForgetModel",
    NodeJoined: "NodeSeen",
    NodeChanged: "NodeSeen",
    NodeLinksChanged: "LinksSeen",
    NodeLost: "NodeLeft",
    **dict.fromkeys(DOWNLOAD_EVENTS, "DownloadSeen"),
    DownloadRequested: "StartDownload",
    DownloadCancelled: "CancelDownload",
    **dict.fromkeys(REMOVAL_EVENTS, "RemovalSeen"),
    RemovalRequested: "RemoveModel",
    **dict.fromkeys(RUNNER_EVENTS, "RunnerStatusSeen"),
}
"""The message that begins with an event of this type."""
_BY_ANY = (NodeLost, NodeJoined, *RUNNER_EVENTS, DownloadFailed)
"""Where what depends on something ends before it, this shows what the message was about."""


def _message(decision: Sequence[Event]) -> str:
    first = decision[0]
    if isinstance(first, CommandRejected):
        return first.command
    if type(first) in _BY_FIRST:
        return _BY_FIRST[type(first)]
    for event in decision:
        if isinstance(event, _BY_ANY):
            return _BY_FIRST[type(event)]
    if isinstance(first, GenerationFinished) and _ran(first):
        return "GenerationEnded"
    if any(isinstance(event, InstanceDeleted) for event in decision):
        return "DeleteInstance"
    if isinstance(first, InstancesUnlinked):
        return "UnlinkInstances"
    cancelled = isinstance(first, GenerationFinished) and first.code == "cancelled"
    return "CancelGeneration" if cancelled else "GenerationEnded"


def _ran(event: Event) -> bool:
    """Whether a runner has said how it ended: whatever the master ends by itself has no figures."""
    return isinstance(event, GenerationFinished) and (event.timings.wait > 0 or event.usage.prompt_tokens > 0)


def _sender(name: str, source: str, hosts: Hosts) -> str:
    if name in _KEY_COMMANDS:
        return f"`exo keys` on {host(source, hosts)}"
    if source in hosts:
        return f"the worker on {hosts[source]}"
    if name in _COMMANDS:
        return f"api {short(source)}"
    return f"runner {short(source)}" if name in {"RunnerStatusSeen", "GenerationEnded"} else f"node {short(source)}"


def _same_place(one: Event, other: Event) -> bool:
    """Of two events about one model: whether they are about the same node too."""
    of_nodes = (*DOWNLOAD_EVENTS, *REMOVAL_EVENTS)
    places = {getattr(event, "node_id", "") for event in (one, other) if isinstance(event, of_nodes)}
    return len(places) < 2


def _asked_for(event: Event, model_id: str) -> bool:
    return isinstance(event, GenerationQueued) and event.model_id == model_id


def _placed_runner(event: Event, runner_id: str) -> bool:
    return isinstance(event, InstancePlaced) and runner_id in event.instance.runner_ids


def _placed_model(event: Event, model_id: str) -> bool:
    return isinstance(event, InstancePlaced) and event.instance.model_id == model_id
