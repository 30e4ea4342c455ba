"""The decision: State and one message give the events that follow from it."""

from collections.abc import Callable
from typing import assert_never

from exo.domain import limits
from exo.domain.decide import downloads, generations, instances, keys, linking, models, nodes, removals, runners
from exo.domain.messages.commands import (
    AddModel,
    CancelDownload,
    CancelGeneration,
    Command,
    CreateKey,
    DeleteInstance,
    ForgetModel,
    LimitIdleTime,
    LinkInstances,
    PlaceInstance,
    RemoveModel,
    RevokeKey,
    StartDownload,
    StartGeneration,
    UnlinkInstances,
)
from exo.domain.messages.events import CommandRejected, Event
from exo.domain.messages.reports import (
    DownloadSeen,
    GenerationEnded,
    LinksSeen,
    NodeLeft,
    NodeSeen,
    RemovalSeen,
    Report,
    RunnerStatusSeen,
)
from exo.domain.state import State
from exo.errors import Rejected

NewId = Callable[[], str]


def decide(
    state: State, message: Command | Report, now: float, new_id: NewId, queue_most: int = limits.QUEUE_PER_MODEL
) -> list[Event]:
    """The events that a message leads to. Pure: `now` is in seconds since the epoch, `new_id` gives unused ids.

    `queue_most`: how many generations may wait for one model.

    A command always gives at least one event, CommandRejected where it is refused. A report that no longer applies
    gives none.
    """
    match message:
        case NodeSeen():
            return nodes.seen(state, message, now)
        case LinksSeen():
            return nodes.links_seen(state, message)
        case NodeLeft():
            return nodes.left(state, message, now)
        case DownloadSeen():
            return nodes.download_seen(state, message)
        case RemovalSeen():
            return removals.seen(state, message)
        case RunnerStatusSeen():
            return runners.status_seen(state, message, now)
        case GenerationEnded():
            return generations.ended(state, message)
        case _:
            return _decide_command(state, message, now, new_id, queue_most)


def _decide_command(state: State, command: Command, now: float, new_id: NewId, queue_most: int) -> list[Event]:
    try:
        match command:
            case PlaceInstance():
                return instances.place_instance(state, command, new_id)
            case DeleteInstance():
                return instances.delete_instance(state, command)
            case LimitIdleTime():
                return instances.limit_idle_time(state, command)
            case LinkInstances():
                return linking.link(state, command)
            case UnlinkInstances():
                return linking.unlink(state, command)
            case StartDownload():
                return downloads.start(state, command)
            case CancelDownload():
                return downloads.cancel(state, command)
            case RemoveModel():
                return removals.remove(state, command)
            case AddModel():
                return models.add(state, command)
            case ForgetModel():
                return models.forget(state, command)
            case StartGeneration():
                return generations.start(state, command, now, queue_most)
            case CancelGeneration():
                return generations.cancel(state, command)
            case CreateKey():
                return keys.create(state, command)
            case RevokeKey():
                return keys.revoke(state, command)
            case _:
                assert_never(command)
    except Rejected as refusal:
        return [
            CommandRejected(
                command=command.type, code=refusal.code, reason=refusal.reason, retry_after=refusal.retry_after
            )
        ]
