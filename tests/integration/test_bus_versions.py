"""Nodes of two versions on one server: none takes half a State from the other."""

import pytest
from nats.aio.msg import Msg

from exo.bus.client import Bus
from exo.bus.queries import answer_queries, ask_outcome, ask_state
from exo.bus.questions import ask
from exo.domain.ids import MessageId
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Fatal, Retryable

STATE = State(position=7)


async def outcome(_message_id: MessageId) -> list[Recorded]:
    return []


async def test_a_node_whose_state_has_another_shape_gets_none(bus: Bus, other_bus: Bus) -> None:
    await answer_queries(other_bus, lambda: STATE, outcome)
    assert await ask_state(bus, 10) == STATE
    with pytest.raises(Retryable, match="no master answered"):
        await ask(bus, "state", b"the digest of another schema", 0.5)


async def test_an_answer_with_an_event_of_a_newer_version_is_refused(bus: Bus, other_bus: Bus) -> None:
    event = b'{"type":"FromTheFuture","version":3}'
    entry = b'{"recorded_at":1.0,"cause_id":null,"source":"s","event":%s}' % event

    async def answer(message: Msg) -> None:
        await message.respond(b'[{"position":1,"entry":%s}]' % entry)

    await other_bus.client.subscribe(bus.subjects.query("outcome"), cb=answer)
    with pytest.raises(
        Fatal, match=r"an event \(FromTheFuture version 3\) was written by a newer version: upgrade exo"
    ):
        await ask_outcome(bus, MessageId("m"), 10)
