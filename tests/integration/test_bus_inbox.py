"""The master's inbox, and the lease that says who reads it."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from exo.bus import inbox as inbox_module
from exo.bus.client import Bus, connect, publish
from exo.bus.inbox import Inbox, Received, send_command, send_report
from exo.bus.lease import Lease, holder
from exo.bus.streams import INBOX, LEASE_TTL
from exo.domain.ids import MessageId, ModelId, NodeId, TaskId
from exo.domain.messages.commands import CancelGeneration, PlaceInstance
from exo.domain.messages.envelope import Envelope
from exo.domain.messages.reports import NodeLeft
from exo.errors import Retryable

if TYPE_CHECKING:
    from conftest import NatsServer, Until

A, B = NodeId("a"), NodeId("b")


def cancel(number: int) -> CancelGeneration:
    return CancelGeneration(task_id=TaskId(f"t{number}"), reason="")


async def send(bus: Bus, *numbers: int) -> list[MessageId]:
    return [await send_command(bus, "api", cancel(number)) for number in numbers]


async def take(inbox: Inbox, count: int, most: int = 256) -> list[Received]:
    """So many messages, in as many fetches as it takes."""
    found: list[Received] = []
    async with asyncio.timeout(15):
        while len(found) < count:
            found += await inbox.fetch(most, timeout=1)
    return found


def ids(received: list[Received]) -> list[MessageId | None]:
    return [one.envelope.message_id if one.envelope else None for one in received]


async def left(bus: Bus, count: int) -> None:
    """Wait until so many messages are not acknowledged."""
    async with asyncio.timeout(15):
        while (await bus.js.stream_info(INBOX)).state.messages != count:
            pass


# The inbox


async def test_commands_and_reports_come_in_the_order_they_were_sent_with_their_senders(bus: Bus) -> None:
    sent = [
        await send_command(bus, "api-1", PlaceInstance(model_id=ModelId("maker/model"))),
        await send_report(bus, "node-1", NodeLeft(node_id=A, boot_id="boot")),
        await send_command(bus, "api-2", cancel(1)),
    ]
    received = await take(await Inbox.take_over(bus), 3)
    assert ids(received) == sent
    envelopes = [one.envelope for one in received if one.envelope]
    assert [one.source for one in envelopes] == ["api-1", "node-1", "api-2"]
    assert envelopes[1].body == NodeLeft(node_id=A, boot_id="boot")


async def test_all_that_waits_comes_at_once_up_to_what_was_asked_for(bus: Bus) -> None:
    sent = await send(bus, *range(12))
    inbox = await Inbox.take_over(bus)
    first = await inbox.fetch(10, timeout=1)
    assert ids(first) == sent[:10]
    assert ids(await inbox.fetch(10, timeout=1)) == sent[10:]


async def test_an_empty_inbox_gives_nothing_in_time(bus: Bus) -> None:
    inbox = await Inbox.take_over(bus)
    async with asyncio.timeout(2):
        assert await inbox.fetch(10, timeout=0.1) == []


async def test_a_message_that_comes_while_nobody_fetches_is_not_lost(bus: Bus) -> None:
    inbox = await Inbox.take_over(bus)
    assert await inbox.fetch(10, timeout=0.05) == []
    sent = await send(bus, *range(3))
    assert ids(await take(inbox, 3)) == sent


async def test_the_next_leader_gets_at_once_and_in_order_what_was_not_acknowledged(bus: Bus, other_bus: Bus) -> None:
    sent = await send(bus, *range(6))
    before = await take(await Inbox.take_over(other_bus), 6)
    for received in before[:2]:
        await received.ack()
    await left(other_bus, 4)
    later = await send(bus, 6, 7)
    after = await take(await Inbox.take_over(bus), 6)
    assert ids(after) == [*sent[2:], *later]
    assert all(received.may_repeat for received in after)


async def test_what_comes_after_the_take_over_for_the_first_time_cannot_repeat(bus: Bus) -> None:
    await send(bus, 1)
    inbox = await Inbox.take_over(bus)
    await send(bus, 2)
    assert [received.may_repeat for received in await take(inbox, 2)] == [True, False]


async def test_a_second_try_may_repeat(bus: Bus, nats_server: "NatsServer", until: "Until") -> None:
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    sending = asyncio.create_task(send_command(bus, "api", cancel(1), 20))
    nats_server.start()
    message_id = await sending
    (received,) = await take(await Inbox.take_over(bus), 1)
    assert ids([received]) == [message_id]
    assert received.may_repeat


async def test_an_acknowledged_message_is_gone(bus: Bus) -> None:
    await send(bus, 1)
    inbox = await Inbox.take_over(bus)
    (received,) = await take(inbox, 1)
    await received.ack()
    await left(bus, 0)
    assert await (await Inbox.take_over(bus)).fetch(10, timeout=0.2) == []


async def test_a_message_that_nobody_acknowledged_comes_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "ACK_WAIT", 0.3)
    sent = await send(bus, 1)
    inbox = await Inbox.take_over(bus)
    first, again = await take(inbox, 1), await take(inbox, 1)
    assert ids(first) == ids(again) == sent
    assert again[0].may_repeat


async def test_a_leader_whose_inbox_was_taken_over_gets_nothing_more(bus: Bus, other_bus: Bus) -> None:
    old = await Inbox.take_over(bus)
    fetching = asyncio.create_task(old.fetch(10, timeout=1))
    new = await Inbox.take_over(other_bus)
    sent = await send(bus, 1, 2)
    assert ids(await take(new, 2)) == sent
    for attempt in (fetching, asyncio.create_task(old.fetch(10, timeout=1))):
        try:
            assert await asyncio.wait_for(attempt, 5) == []
        except Retryable as error:
            assert "inbox" in str(error)


async def test_an_unreadable_message_says_why_and_can_be_acknowledged(bus: Bus) -> None:
    subject = bus.subjects.command("PlaceInstance")
    envelope = Envelope(message_id=MessageId("m1"), source="api", sent_at=1, body=cancel(1)).model_dump_json()
    for number, payload in enumerate(["no JSON", envelope.replace("CancelGeneration", "CancelAll"), "{}"]):
        await publish(bus, subject, payload.encode(), f"bad-{number}", 5)
    await publish(bus, subject, envelope.encode(), "good", 5)
    inbox = await Inbox.take_over(bus)
    received = await take(inbox, 4)
    assert [one.envelope is None for one in received] == [True, True, True, False]
    assert all("problems, the first: " in one.problem for one in received[:3])
    for one in received:
        await one.ack()
    await left(bus, 0)


async def test_one_message_id_is_taken_once(bus: Bus) -> None:
    envelope = Envelope(message_id=MessageId("m1"), source="api", sent_at=1, body=cancel(1)).model_dump_json().encode()
    first = await publish(bus, bus.subjects.command("CancelGeneration"), envelope, "m1", 5)
    assert await publish(bus, bus.subjects.command("CancelGeneration"), envelope, "m1", 5) == first
    assert (await bus.js.stream_info(INBOX)).state.messages == 1


async def test_the_inbox_outlives_a_kill_of_the_server(bus: Bus, nats_server: "NatsServer", until: "Until") -> None:
    sent = await send(bus, 1, 2)
    inbox = await Inbox.take_over(bus)
    received = await take(inbox, 1, most=1)
    await received[0].ack()
    await left(bus, 1)
    nats_server.kill()
    nats_server.start()
    await until(lambda: bus.connections == 2, "the reconnect")
    sent += await send(bus, 3)
    assert ids(await take(await Inbox.take_over(bus), 2)) == sent[1:]


async def test_an_inbox_that_cannot_be_reached_is_retryable(
    bus: Bus, nats_server: "NatsServer", until: "Until"
) -> None:
    inbox = await Inbox.take_over(bus)
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    assert await inbox.fetch(10, timeout=0.2) == []
    with pytest.raises(Retryable, match="taken over"):
        await Inbox.take_over(bus)


# The lease


@pytest.fixture
async def two(nats_server: "NatsServer", bus: Bus, other_bus: Bus) -> AsyncIterator[tuple[Lease, Lease]]:
    yield Lease(bus, A), Lease(other_bus, B)


async def test_of_two_one_wins_and_keeps_it_while_it_renews(bus: Bus, two: tuple[Lease, Lease]) -> None:
    won = await asyncio.gather(*(lease.acquire() for lease in two))
    assert sorted(won) == [False, True]
    winner, loser = two if won[0] else two[::-1]
    for _ in range(3):
        assert await winner.renew()
        assert not await loser.acquire()
        assert not await loser.renew()
    assert await holder(bus) == (A if won[0] else B)


async def test_a_lease_that_is_not_renewed_is_free_after_its_time(bus: Bus, two: tuple[Lease, Lease]) -> None:
    first, second = two
    assert await first.acquire()
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(15):
        while not await second.acquire():
            assert await holder(bus) in (A, None)
    assert LEASE_TTL - 1 < asyncio.get_running_loop().time() - began < LEASE_TTL + 3
    assert not await first.renew()
    assert await holder(bus) == B


async def test_a_released_lease_is_free_at_once(bus: Bus, two: tuple[Lease, Lease]) -> None:
    first, second = two
    assert await first.acquire()
    await first.release()
    assert await holder(bus) is None
    assert await second.acquire()
    assert await holder(bus) == B


async def test_releasing_does_not_take_the_lease_from_another(bus: Bus, two: tuple[Lease, Lease]) -> None:
    first, second = two
    assert await first.acquire()
    await first.release()
    assert await second.acquire()
    await first.release()
    assert await holder(bus) == B
    assert await second.renew()


async def test_a_restarted_master_takes_over_the_lease_that_its_node_left(bus: Bus, other_bus: Bus) -> None:
    before, after = Lease(bus, A), Lease(other_bus, A)
    assert await before.acquire()
    assert await after.acquire()
    assert not await before.renew()
    assert await after.renew()


async def test_a_server_that_is_away_gives_no_lease(
    bus: Bus, nats_server: "NatsServer", until: "Until", two: tuple[Lease, Lease]
) -> None:
    assert await two[0].acquire()
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    assert not await two[0].renew()
    assert not await two[1].acquire()
    assert await holder(bus) is None


async def test_the_lease_is_free_again_after_a_restart_of_the_server(
    nats_server: "NatsServer", until: "Until", two: tuple[Lease, Lease]
) -> None:
    assert await two[0].acquire()
    nats_server.kill()
    nats_server.start()
    again = await connect(nats_server.url, "test", "third")
    assert await Lease(again, B).acquire()
    await again.close()
