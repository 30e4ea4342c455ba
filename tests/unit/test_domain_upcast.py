"""Events of older versions, read as those of today, whatever way they come."""

import json

import pytest

from exo.domain.messages.events import Entry, NodeLost, Recorded
from exo.domain.messages.upcast import (
    UPCASTERS,
    VERSIONS,
    Body,
    UnreadableEvent,
    Upcasters,
    lift,
    read_entry,
    read_event,
    read_recorded,
)

OLD: Upcasters = {
    ("NodeLost", -1): lambda body: {"type": "NodeLost", "version": 0, "node": body["id"]},
    ("NodeLost", 0): lambda body: {"type": "NodeLost", "version": 1, "node_id": body["node"], "reason": "unknown"},
}
"""As if NodeLost had had two other shapes."""
OLDEST: Body = {"type": "NodeLost", "version": -1, "id": "n"}
LIFTED = NodeLost.model_validate({"node_id": "n", "reason": "unknown"})
ENTRY: Body = {"recorded_at": 1.5, "cause_id": "c", "source": "s"}


def entry(event: Body) -> bytes:
    return json.dumps({**ENTRY, "event": event}).encode()


def page(*events: Body) -> bytes:
    return json.dumps(
        [{"position": 7 + at, "entry": {**ENTRY, "event": one}} for at, one in enumerate(events)]
    ).encode()


def test_an_older_version_is_lifted_step_by_step() -> None:
    assert lift("NodeLost", -1, OLDEST, OLD) == LIFTED.model_dump()
    assert lift("NodeLost", 0, {"node": "n"}, OLD) == LIFTED.model_dump()
    assert read_event("NodeLost", -1, json.dumps(OLDEST), OLD) == LIFTED


def test_todays_version_is_left_as_it_is() -> None:
    assert lift("NodeLost", 1, LIFTED.model_dump(), {}) == LIFTED.model_dump()
    assert read_event("NodeLost", 1, LIFTED.model_dump_json(), {}) == LIFTED


def test_a_message_of_events_is_lifted() -> None:
    wanted = Entry.model_validate({**ENTRY, "event": LIFTED})
    assert read_entry(entry(OLDEST), OLD) == wanted
    assert read_entry(wanted.model_dump_json().encode(), {}) == wanted


def test_an_answer_is_lifted_with_what_is_new_in_it() -> None:
    read = read_recorded(page(LIFTED.model_dump(), OLDEST), OLD)
    wanted = Entry.model_validate({**ENTRY, "event": LIFTED})
    assert read == [Recorded(position=7, entry=wanted), Recorded(position=8, entry=wanted)]
    assert read_recorded(b"[]") == []


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"type": "GenerationDreamt", "version": 1}, r"^\(GenerationDreamt version 1\) was written by a newer version"),
        ({"type": "GenerationDreamt"}, "was written by a newer version: upgrade exo$"),
        ({"type": "NodeLost", "version": 2}, r"^\(NodeLost version 2\) was written by a newer version: upgrade exo$"),
        ({"type": "NodeLost", "version": -2}, r"^\(NodeLost version -2\) is older than what this version reads$"),
        ({"type": "NodeLost", "version": "x"}, "is damaged"),
        ({"type": "NodeLost", "version": 1}, "is damaged: .*node_id: Field required"),
        ({"type": "NodeLost", "version": -1}, "is damaged: 'id'"),
        ({"type": []}, "is damaged"),
        ({}, "is damaged: 'type'"),
    ],
)
def test_what_cannot_be_read_says_why(event: Body, why: str) -> None:
    with pytest.raises(UnreadableEvent, match=why):
        read_entry(entry(event), OLD)
    with pytest.raises(UnreadableEvent, match=why):
        read_recorded(page(LIFTED.model_dump(), event), OLD)


@pytest.mark.parametrize("payload", [b"", b"{", b"null", b"[1]", b"\xff", b'{"event": 1}', b"[" * 100_000])
def test_what_is_no_event_at_all_is_damaged(payload: bytes) -> None:
    for read in (read_entry, read_recorded):
        with pytest.raises(UnreadableEvent, match="is damaged"):
            read(payload)


def test_every_upcaster_leads_to_a_version_that_is_read() -> None:
    for event_type, version in UPCASTERS:
        assert all((event_type, number) in UPCASTERS for number in range(version, VERSIONS[event_type]))
