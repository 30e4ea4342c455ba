"""Events to rows and back."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from math import inf
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from exo.domain.messages.events import Compacted, Event, Recorded
from exo.domain.messages.upcast import UPCASTERS, VERSIONS, UnreadableEvent, Upcasters, read_event
from exo.errors import Fatal

GENESIS = hashlib.sha256(b"exo event log").hexdigest()
"""What the first row's chain is built on."""

_PAGE: TypeAdapter[list[Recorded]] = TypeAdapter(list[Recorded])

COMPACTED = "Compacted"
"""The type of a row whose content was dropped: its body is the digest of what was there, not JSON."""
_DIGEST = re.compile("[0-9a-f]{64}")


class StoredEvent(NamedTuple):
    """One row of the table `events`, in the order of its columns."""

    position: int
    recorded_at: float
    type: str
    version: int
    cause_id: str | None
    source: str
    body: str
    chain: str


StoredBody = tuple[int, float, str, int, str]
"""What of a row State depends on: position, recorded_at, type, version and body."""


class Undecodable(Fatal):
    """A row that does not give an event."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"the event at position {position} {why}")
        self.position = position
        self.why = why


def encode(recorded: Recorded, previous_chain: str) -> StoredEvent:
    """The row of an event, its chain built on that of the row before."""
    position, entry, event = recorded.position, recorded.entry, recorded.entry.event
    # -0.0 is a valid time and SQLite gives it back as 0.0, which would break the chain.
    recorded_at = entry.recorded_at + 0.0
    if isinstance(event, Compacted):
        return _compacted(position, recorded_at, event.digest, linked(previous_chain, event.digest))
    body = event.model_dump_json()
    chain = linked(previous_chain, digest(position, recorded_at, entry.cause_id, entry.source, body))
    return StoredEvent(position, recorded_at, event.type, event.version, entry.cause_id, entry.source, body, chain)


def compacted(row: StoredEvent) -> StoredEvent:
    """A row without its content. The chain stays as it is: the digest of what was there takes the body's place."""
    return _compacted(row.position, row.recorded_at, row_digest(row), row.chain)


def digest(position: int, recorded_at: float, cause_id: str | None, source: str, body: str) -> str:
    """The digest of a row: SHA-256, hexadecimal, of a JSON array in ASCII without spaces.

    The array holds the position, the time as the shortest text that reads back as the same number, the cause or null,
    the source, and the body as a string. As a JSON array no two different rows give the same bytes, and any language
    can check it.
    """
    # Written out, because `json.dumps` takes three times as long.
    cause = "null" if cause_id is None else _quoted(cause_id)
    text = f'[{position},"{recorded_at!r}",{cause},{_quoted(source)},{_quoted(body)}]'
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def row_digest(row: StoredEvent) -> str:
    """The digest of a row as it was recorded. Raises TypeError or ValueError where a column holds what none can."""
    if row.type == COMPACTED:
        return _kept_digest(row)
    return digest(row.position, row.recorded_at, row.cause_id, row.source, row.body)


def linked(previous: str, row_digest: str) -> str:
    """The chain of a row: SHA-256, hexadecimal, of the chain of the row before (the first row: GENESIS) and its digest.

    Both are hexadecimal text, one after the other.
    """
    return hashlib.sha256((previous + row_digest).encode("ascii")).hexdigest()


def holds(row: StoredEvent, recorded: Recorded) -> bool:
    """Whether a row is that of an event, or was before it was compacted. Raises Undecodable where it is damaged."""
    if row.type == COMPACTED:
        return row.body == row_digest(encode(recorded, GENESIS))
    return decode([row]) == [recorded]


def follows(row: StoredEvent, previous_chain: str) -> bool:
    """Whether a row's chain is the right one after that of the row before."""
    try:
        return row.chain == linked(previous_chain, row_digest(row))
    except (TypeError, ValueError):
        return False  # SQLite keeps bytes in a column for text, if somebody puts them there


def _compacted(position: int, recorded_at: float, digest: str, chain: str) -> StoredEvent:
    return StoredEvent(position, recorded_at, COMPACTED, VERSIONS[COMPACTED], None, "", digest, chain)


def _kept_digest(row: StoredEvent) -> str:
    if row.cause_id is not None or row.source != "" or not _DIGEST.fullmatch(row.body):
        raise ValueError("a compacted row holds nothing but a digest")
    return row.body


def decode(rows: Sequence[StoredEvent], upcasters: Upcasters = UPCASTERS) -> list[Recorded]:
    """The events of a page of rows. Raises Undecodable, naming the position of the first row that gives none."""
    # Each event by itself, so that the position of a bad one is known; all the rest in one call, which is faster.
    page = [
        {
            "position": row.position,
            "entry": {
                "recorded_at": row.recorded_at,
                "cause_id": row.cause_id,
                "source": row.source,
                "event": _event(row.position, row.type, row.version, row.body, upcasters),
            },
        }
        for row in rows
    ]
    try:
        return _PAGE.validate_python(page)
    except ValidationError as error:
        first = error.errors()[0]
        index = first["loc"][0]
        position = rows[index].position if isinstance(index, int) else rows[0].position
        raise Undecodable(position, f"is damaged: {first['msg']}") from error


def timed(rows: Iterable[StoredBody], upcasters: Upcasters = UPCASTERS) -> Iterator[tuple[int, float, Event]]:
    """Position, time and event of each row, for a replay: one after the other, so that the collector of garbage never
    finds a thousand of them alive. Raises Undecodable for the first row that gives none.
    """
    for position, recorded_at, event_type, version, body in rows:
        # What Entry demands of a time.
        if type(recorded_at) is not float or not 0 <= recorded_at < inf:
            raise Undecodable(position, f"is damaged: {recorded_at!r} is no time")
        yield position, recorded_at, _event(position, event_type, version, body, upcasters)


def _event(position: int, event_type: str, version: int, body: str, upcasters: Upcasters) -> Event:
    if event_type == COMPACTED:
        body = f'{{"type":"{COMPACTED}","digest":{_quoted(str(body))}}}'
    try:
        event = read_event(event_type, version, body, upcasters)
    except UnreadableEvent as error:
        raise Undecodable(position, str(error)) from error
    if event.type != event_type:
        raise Undecodable(position, f"is damaged: it says {event.type}, its row says {event_type}")
    return event
