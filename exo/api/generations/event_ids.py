"""The ids of a stream's events, by which a client that lost its connection says how far it came.

An id is the answer's own id, when it was asked for, and the number of the last event of each choice: all that is needed
to make the same events again. The rest is in the streams REQUESTS and CHUNKS. Choices come in an order that nobody can
make again, but the events of each one come in theirs; so an id says how far each is.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from exo.domain.ids import TaskId
from exo.errors import Rejected

HEADER = "last-event-id"
_ID = re.compile(
    r"(?P<task>[0-9a-f]{32})-(?P<created>[0-9a-f]{8,10})-(?P<numbers>(?=[0-9.]*[0-9])[0-9]{0,9}(\.[0-9]{0,9}){0,127})"
)


@dataclass(frozen=True, slots=True)
class EventId:
    """The place of an event."""

    task_id: TaskId
    """Of the first choice."""
    created: int
    """When the answer was asked for, seconds since the epoch."""
    numbers: tuple[int, ...]
    """Of the last event of each choice that had come by then, from 0; -1 where none had."""


def before_all(task_id: TaskId, created: int, choices: int) -> EventId:
    """The place before the first event of an answer."""
    return EventId(task_id, created, (-1,) * choices)


def parse_event_id(text: str, prefix: str) -> EventId:
    """What `Last-Event-ID` says, of an answer whose id begins with `prefix`. Raises Rejected where that is no such."""
    found = _ID.fullmatch(text.removeprefix(prefix)) if text.startswith(prefix) else None
    if found is None:
        reason = f"there is no event '{text[:100]}': this endpoint's have an id such as {prefix}5f3c…-6919c3a2-17"
        raise Rejected(reason, code="event_not_found", param="Last-Event-ID")
    numbers = tuple(int(number) if number else -1 for number in found["numbers"].split("."))
    return EventId(TaskId(found["task"]), int(found["created"], 16), numbers)


class EventNumbers:
    """Gives the events of one stream their ids, and leaves out those that the client has."""

    __slots__ = ("_had", "_head", "_made", "_places")

    def __init__(self, prefix: str, seen: EventId) -> None:
        """`seen`: the last event that the client has."""
        self._head = f"id: {prefix}{seen.task_id}-{seen.created:x}-".encode()
        self._had = seen.numbers
        self._made = [-1] * len(seen.numbers)
        """The number of the last event of each choice that was made."""
        self._places = [b"%d" % number if number >= 0 else b"" for number in seen.numbers]
        """The number of the last one of each choice that the client has."""

    def add(self, index: int, events: Sequence[bytes]) -> bytes:
        """The next events of the choice at `index` as they are sent."""
        sent = b""
        for event in events:
            number = self._made[index] = self._made[index] + 1
            if number > self._had[index]:
                self._places[index] = b"%d" % number
                sent += b"%b%b\n%b" % (self._head, b".".join(self._places), event)
        return sent
