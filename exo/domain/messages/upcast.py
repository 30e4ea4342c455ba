"""Events of every version that ever was, read as those of today: from the log's file, from `EVENTS`, from an answer.

A changed shape gets a new `version` in its class, and a function here that lifts what the version before wrote. It
stays for ever: a log may begin with the first version.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import cast, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from exo.domain.messages.events import Entry, Event, Recorded
from exo.errors import ExoError

Body = dict[str, object]
"""An event as plain data."""
Upcasters = Mapping[tuple[str, int], Callable[[Body], Body]]


def _renumbered(version: int) -> Callable[[Body], Body]:
    """For a version that only adds fields which have defaults."""
    return lambda body: {**body, "version": version}


UPCASTERS: Upcasters = {
    ("NodeJoined", 1): _renumbered(2),
    ("NodeChanged", 1): _renumbered(2),
    ("InstancePlaced", 1): _renumbered(2),
    ("GenerationQueued", 1): _renumbered(2),
    ("GenerationFinished", 1): _renumbered(2),
    ("GenerationFinished", 2): _renumbered(3),
    ("CommandRejected", 1): _renumbered(2),
}
"""By type and version: lifts an event's plain data to the next version, whose number it sets."""

_ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_PAGE: TypeAdapter[list[Recorded]] = TypeAdapter(list[Recorded])

_validated: Callable[[str], Event] = _EVENT.validator.validate_json
"""As the adapter's own, without a call in between: a replay does it a million times."""


def event_classes() -> dict[str, type[BaseModel]]:
    """The class of each type of event."""
    union: tuple[type[BaseModel], ...] = get_args(get_args(Event)[0])
    return {one.model_fields["type"].default: one for one in union}


VERSIONS: Mapping[str, int] = {name: one.model_fields["version"].default for name, one in event_classes().items()}
"""The version of each event type that this program writes."""


_WRONG = (ValueError, TypeError, KeyError, RecursionError)
"""What reading data raises that is not what it should be. A ValidationError is a ValueError."""


class UnreadableEvent(ExoError):  # noqa: N818  (what it is, as with the others)
    """Data that gives no event of today. Its text says why, as what follows on "the event at position 7"."""


def lift(event_type: str, version: int, body: Body, upcasters: Upcasters = UPCASTERS) -> Body:
    """An event's plain data as today's version would have written it.

    Raises UnreadableEvent where the version is newer than this program, or too old for it.
    """
    newest = VERSIONS.get(event_type)
    if newest is None or version > newest:
        raise UnreadableEvent(f"({event_type} version {version}) was written by a newer version: upgrade exo")
    for number in range(version, newest):
        upcaster = upcasters.get((event_type, number))
        if upcaster is None:
            raise UnreadableEvent(f"({event_type} version {number}) is older than what this version reads")
        body = upcaster(body)
    return body


def read_event(event_type: str, version: int, body: str, upcasters: Upcasters = UPCASTERS) -> Event:
    """The event of a JSON text that was written as this type and version. Raises UnreadableEvent."""
    try:
        if VERSIONS.get(event_type) == version:
            return _validated(body)
        return _EVENT.validate_python(lift(event_type, version, json.loads(body), upcasters))
    except _WRONG as error:
        raise UnreadableEvent(f"({event_type}) is damaged: {first_line(error)}") from error


def read_entry(payload: bytes, upcasters: Upcasters = UPCASTERS) -> Entry:
    """The entry of a message on `EVENTS`. Raises UnreadableEvent."""
    # Nearly all are of today's version. The others fail at once, because their number is none that it knows.
    with suppress(ValidationError):
        return _ENTRY.validate_json(payload)
    try:
        return _ENTRY.validate_python(_lifted(json.loads(payload), upcasters))
    except _WRONG as error:
        raise UnreadableEvent(f"is damaged: {first_line(error)}") from error


def read_recorded(payload: bytes, upcasters: Upcasters = UPCASTERS) -> list[Recorded]:
    """The events of a JSON array, as a master of any version answers with. Raises UnreadableEvent."""
    with suppress(ValidationError):
        return _PAGE.validate_json(payload)
    try:
        page = cast("list[Body]", json.loads(payload))
        return _PAGE.validate_python([{**one, "entry": _lifted(one["entry"], upcasters)} for one in page])
    except _WRONG as error:
        raise UnreadableEvent(f"is damaged: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """What is wrong with data, in one line: the place in it, and the first of the complaints."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else first["msg"]
    return next(iter(str(error).splitlines()), repr(error))


def _lifted(entry: object, upcasters: Upcasters) -> Body:
    fields = cast("Body", entry)
    event = cast("Body", fields["event"])
    event_type, version = cast("str", event["type"]), cast("int", event.get("version", 1))
    return {**fields, "event": lift(event_type, version, event, upcasters)}
