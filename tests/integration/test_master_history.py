"""Masters that lack some of the past, or have another: what they take from others, wait for, and refuse."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from log_events import history
from test_master_leading import UNKNOWN, A, B, elected, inbox_is_empty, outcome, preloaded, running

from exo.bus.client import Bus
from exo.bus.events import append
from exo.bus.inbox import send_command
from exo.bus.lease import Lease
from exo.bus.queries import ask_events
from exo.bus.streams import EVENTS, INBOX
from exo.domain.messages.events import Recorded
from exo.errors import Fatal, Retryable
from exo.log.store import LogStore
from exo.log.verify import verify

if TYPE_CHECKING:
    from conftest import NatsServer, Until


async def test_a_follower_gets_what_the_stream_no_longer_holds_from_the_leaders_log(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    await preloaded(tmp_path / "a", history(1200))
    await preloaded(tmp_path / "b", history(5))
    async with running(nats_server, tmp_path / "a", A) as leader:
        await until(elected(A, 2)(leader), "the election")
        await bus.js.purge_stream(EVENTS, seq=1195)
        async with running(nats_server, tmp_path / "b", B) as follower:
            await until(lambda: follower.state == leader.state, "the follower to catch up")
            assert await follower.store.rows(0, 2000) == await leader.store.rows(0, 2000)
            assert follower.store.chain == leader.store.chain


async def test_a_master_that_lacks_what_nobody_has_ends_with_what_to_do(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    await preloaded(tmp_path, history(5))
    await append(bus, [[recorded.entry] for recorded in history(20)], 0)
    await bus.js.purge_stream(EVENTS, seq=15)
    async with running(nats_server, tmp_path) as master:
        with pytest.raises(Fatal, match=r"ends at 5, .* begins at 15, .*put a copy of its log"):
            await asyncio.wait_for(master.task, 20)


async def test_a_master_that_is_behind_takes_the_rest_from_others_before_it_leads_on_a_stream_that_lost_all(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    await preloaded(tmp_path / "a", history(1200))
    await preloaded(tmp_path / "b", history(5))
    lease = Lease(bus, B)  # so that the one that is far ahead does not get it
    assert await lease.acquire()
    async with running(nats_server, tmp_path / "a", A) as ahead:
        await until(lambda: ahead.state.position == 1200, "the log to be read")
        async with running(nats_server, tmp_path / "b", B) as behind:
            await until(lambda: behind.state.epoch == 2 and behind.state == ahead.state, "both to agree")
            assert behind.state.master == B
            assert await behind.store.rows(0, 2000) == await ahead.store.rows(0, 2000)


async def test_a_follower_whose_history_is_another_ends_with_the_position(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    await preloaded(tmp_path / "b", history(8))
    async with running(nats_server, tmp_path / "a", A) as leader:
        for _ in range(20):
            await outcome(bus, await send_command(bus, "api", UNKNOWN))
        async with running(nats_server, tmp_path / "b", B) as other:
            with pytest.raises(Fatal, match="different events from position 1 on"):
                await asyncio.wait_for(other.task, 15)
        assert not leader.task.done()


async def test_a_full_disk_stops_the_decisions_and_nothing_else_until_there_is_room(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until", caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(nats_server, tmp_path) as master:
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
        room = await most_pages(master.store, 0)
        message_ids = [await send_command(bus, "api", UNKNOWN) for _ in range(200)]
        await until(lambda: "is full: free some space" in caplog.text, "the line that says what is wrong")
        assert (await bus.js.stream_info(INBOX)).state.messages > 0
        assert not master.task.done()
        assert (await master.store.refresh(), master.store.position) == (master.state.position, master.state.position)
        await most_pages(master.store, room)
        for message_id in message_ids:
            assert len(await outcome(bus, message_id)) == 1
        await inbox_is_empty(bus)
        assert "there is room for the log again" in caplog.text
        assert (await verify(master.store)).problems == ()
        assert caplog.text.count("is full: free some space") == 1


async def most_pages(store: LogStore, most: int) -> int:
    """Let the file have at most so many pages, as a full disk would; 0: no more than now. The number before."""
    connection = store._connection
    assert connection is not None
    before = (await connection.exec_driver_sql("PRAGMA max_page_count")).scalar_one()
    await connection.exec_driver_sql(f"PRAGMA max_page_count = {most or 1}")
    await connection.rollback()
    return int(before)


async def test_events_of_any_age_are_had_from_a_master(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    await preloaded(tmp_path, history(1200))
    async with running(nats_server, tmp_path) as master:
        await until(elected(A, 2)(master), "the election")
        seen: list[Recorded] = []
        while len(seen) < 1200:
            seen += await ask_events(bus, len(seen), 5)
        assert seen[:1200] == history(1200)
        with pytest.raises(Retryable):
            await ask_events(bus, master.state.position, 0.2)
