"""The ids of a stream's events, by which a client that lost its connection says how far it came.

An id is the answer's own id, when it was asked for, and the event's number: all that is needed to make the same events
again. The rest is in the streams REQUESTS and CHUNKS.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from exo.domain.ids import TaskId
from exo.errors import Rejected

HEADER = "last-event-id"
_ID = re.compile(r"(?P<task>[0-9a-f]{32})-(?P<created>[0-9a-f]{8,10})-(?P<number>[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class EventId:
    """The place of an event."""

    task_id: TaskId
    created: int
    """When the answer was asked for, seconds since the epoch."""
    number: int
    """Of the event, from 0."""


def parse_event_id(text: str, prefix: str) -> EventId:
    """What `Last-Event-ID` says, of an answer whose id begins with `prefix`. Raises Rejected where that is no such."""
    found = _ID.fullmatch(text.removeprefix(prefix)) if text.startswith(prefix) else None
    if found is None:
        reason = f"there is no event '{text[:100]}': this endpoint's have an id such as {prefix}5f3c…-6919c3a2-17"
        raise Rejected(reason, code="event_not_found", param="Last-Event-ID")
    return EventId(TaskId(found["task"]), int(found["created"], 16), int(found["number"]))


class EventNumbers:
    """Gives the events of one stream their ids, and leaves out those that the client has."""

    __slots__ = ("_head", "_next", "_seen")

    def __init__(self, prefix: str, seen: EventId) -> None:
        """`seen`: the last event that the client has; before the first its number is -1."""
        self._head = f"id: {prefix}{seen.task_id}-{seen.created:x}-".encode()
        self._next = 0
        self._seen = seen.number

    def add(self, events: Sequence[bytes]) -> bytes:
        """The next events as they are sent."""
        sent = b""
        for event in events:
            if self._next > self._seen:
                sent += b"%b%d\n%b" % (self._head, self._next, event)
            self._next += 1
        return sent


class NoNumbers:
    """Stands in for them in a stream that nobody can come back to."""

    def add(self, events: Sequence[bytes]) -> bytes:
        """The events as they are."""
        return b"".join(events)
