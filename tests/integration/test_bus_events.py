"""The stream EVENTS: one fenced writer, readers that miss nothing, and copies of State that follow it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from log_events import history

from exo.bus import events
from exo.bus.client import Bus, connect
from exo.bus.events import Fenced, append, begin_at, bounds, entry_at, follow
from exo.bus.queries import answer_queries
from exo.bus.reader import read_stream
from exo.bus.replica import Replica, following
from exo.bus.streams import EVENTS
from exo.domain.fold import fold
from exo.domain.ids import MessageId
from exo.domain.messages.events import Entry, Recorded
from exo.domain.state import State
from exo.errors import Retryable

if TYPE_CHECKING:
    from conftest import NatsServer, Until


def entries(recorded: Sequence[Recorded]) -> list[Entry]:
    return [one.entry for one in recorded]


def alone(recorded: Sequence[Recorded]) -> list[list[Entry]]:
    """Each entry a unit of its own."""
    return [[one.entry] for one in recorded]


async def record(bus: Bus, recorded: Sequence[Recorded]) -> None:
    """Append what follows on what is there."""
    await append(bus, alone(recorded), (await bounds(bus))[1])


async def read(bus: Bus, after: int, count: int) -> list[Recorded]:
    """The next `count` events after a position."""
    found: list[Recorded] = []
    async with asyncio.timeout(15), aclosing(follow(bus, after)) as batches:
        async for batch in batches:
            found += batch
            if len(found) >= count:
                return found
    raise AssertionError("the stream ended")


# One writer


async def test_what_is_appended_is_recorded_at_the_positions_that_follow(bus: Bus) -> None:
    wanted = history(40)
    assert await append(bus, alone(wanted[:1]), 0) == wanted[:1]
    assert await append(bus, [entries(wanted[1:3])], 1) == wanted[1:3]
    assert await append(bus, alone(wanted[3:6]), 3) == wanted[3:6]
    assert await append(bus, alone(wanted[6:]), 6) == wanted[6:]
    assert await append(bus, [], 40) == []
    assert await read(bus, 0, 40) == wanted


@pytest.mark.parametrize("units", [1, 3, 4, 5, 50])
async def test_nothing_lands_of_what_a_fenced_writer_appends(bus: Bus, other_bus: Bus, units: int) -> None:
    await append(bus, alone(history(10)), 0)
    intruder = history(1, after=10)
    await append(other_bus, alone(intruder), 10)
    with pytest.raises(Fenced):
        await append(bus, alone(history(units, after=10)), 10)
    assert await bounds(bus) == (1, 11)
    with pytest.raises(Fenced):
        await append(bus, [entries(history(units, after=10))], 10)
    assert await bounds(bus) == (1, 11)


async def test_a_writer_that_expects_too_much_is_fenced_too(bus: Bus) -> None:
    with pytest.raises(Fenced):
        await append(bus, alone(history(1)), 5)
    with pytest.raises(Fenced):
        await append(bus, [entries(history(3))], 5)
    assert await bounds(bus) == (1, 0)


def by_another(recorded: Sequence[Recorded]) -> list[Recorded]:
    """The same positions as another master would fill them."""
    return [one.model_copy(update={"entry": one.entry.model_copy(update={"source": "another"})}) for one in recorded]


@pytest.mark.parametrize(("length", "lone"), [(2, True), (8, True), (40, True), (8, False), (40, False)])
async def test_of_two_that_write_at_once_one_is_recorded_whole_and_the_other_not_at_all(
    bus: Bus, other_bus: Bus, length: int, lone: bool
) -> None:
    rounds = 10
    wanted = history(length * rounds)
    recorded: list[Recorded] = []
    for begin in range(0, length * rounds, length):
        first = wanted[begin : begin + length]
        second = by_another(first)
        results = await asyncio.gather(
            append(bus, alone(first) if lone else [entries(first)], begin),
            append(other_bus, alone(second) if lone else [entries(second)], begin),
            return_exceptions=True,
        )
        assert sum(isinstance(result, Fenced) for result in results) == 1, results
        recorded += next(result for result in results if isinstance(result, list))
    assert await bounds(bus) == (1, length * rounds)
    assert await read(bus, 0, length * rounds) == recorded


@pytest.mark.parametrize("length", [2, 8, 16])
async def test_an_unfenced_message_in_the_middle_of_a_chain_ends_it_there(
    bus: Bus, other_bus: Bus, length: int
) -> None:
    wanted = history(length * 20)
    cut, last = 0, 0
    for begin in range(0, length * 20, length):
        chain = wanted[begin : begin + length]
        appending = asyncio.create_task(append(bus, alone(chain), last))
        intruder = by_another(history(1))[0].entry
        await other_bus.client.publish(other_bus.subjects.event("MasterElected"), intruder.model_dump_json().encode())
        try:
            await appending
        except Fenced:
            cut += 1
        await other_bus.js.account_info()
        before, last = last, (await bounds(bus))[1]
        held = [one.entry for one in await read(bus, before, last - before)]
        ours = [entry for entry in held if entry != intruder]
        assert held.count(intruder) == 1
        assert ours == entries(chain)[: len(ours)]
        if len(ours) < length:
            assert held == [*ours, intruder]
    assert cut


async def test_thousands_of_events_go_in_slices(bus: Bus) -> None:
    wanted = history(2500)
    assert await append(bus, alone(wanted), 0) == wanted
    assert await bounds(bus) == (1, 2500)
    assert await read(bus, 0, 2500) == wanted


async def test_no_unit_is_cut_where_a_slice_ends(bus: Bus, other_bus: Bus) -> None:
    wanted = history(1500)
    units = [entries(wanted[begin : begin + 300]) for begin in range(0, 1500, 300)]
    assert events._batches(units)[0] == entries(wanted[:900])
    assert await append(bus, units, 0) == wanted


async def test_an_answer_that_stays_away_is_retryable(bus: Bus, nats_server: "NatsServer", until: "Until") -> None:
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    with pytest.raises(Retryable):
        await append(bus, alone(history(1)), 0)


async def test_a_batch_without_its_end_leaves_nothing(bus: Bus) -> None:
    for number, one in enumerate(history(3), 1):
        headers = {"Nats-Batch-Id": "cut off", "Nats-Batch-Sequence": str(number)}
        await bus.client.publish(
            bus.subjects.event(one.entry.event.type), one.entry.model_dump_json().encode(), headers=headers
        )
    assert await append(bus, alone(history(1)), 0) == history(1)
    assert await bounds(bus) == (1, 1)


# Positions


async def test_an_empty_stream_has_bounds_that_hold_nothing(bus: Bus) -> None:
    assert await bounds(bus) == (1, 0)
    assert await entry_at(bus, 1) is None
    await append(bus, alone(history(3)), 0)
    await bus.js.purge_stream(EVENTS)
    assert await bounds(bus) == (4, 3)


async def test_a_position_gives_what_it_holds(bus: Bus) -> None:
    wanted = history(5)
    await append(bus, alone(wanted), 0)
    assert await entry_at(bus, 3) == wanted[2].entry
    assert await entry_at(bus, 6) is None


async def test_a_stream_made_anew_goes_on_where_it_is_told_to(bus: Bus) -> None:
    await append(bus, alone(history(3)), 0)
    await begin_at(bus, 1001)
    assert await bounds(bus) == (1001, 1000)
    later = history(2, after=1000)
    assert await append(bus, alone(later), 1000) == later
    assert await bounds(bus) == (1001, 1002)
    assert await read(bus, 1000, 2) == later


# Readers


async def test_a_reader_begins_exactly_where_it_is_told_to(bus: Bus) -> None:
    wanted = history(20)
    await append(bus, alone(wanted), 0)
    assert await read(bus, 12, 8) == wanted[12:]


async def test_a_reader_that_waits_for_a_later_position_gets_nothing_earlier(
    bus: Bus, nats_server: "NatsServer", until: "Until"
) -> None:
    await append(bus, alone(history(5)), 0)
    reading = asyncio.create_task(read(bus, 7, 1))
    await restart(bus, nats_server, until)
    await record(bus, history(4, after=5))
    assert await reading == history(2, after=7)[: len(await reading)]


async def test_reading_outlives_kills_of_the_server_without_gap_or_double(
    bus: Bus, nats_server: "NatsServer", until: "Until"
) -> None:
    wanted = history(30)
    seen: list[Recorded] = []

    async def reading() -> None:
        async for batch in follow(bus, 0):
            seen.extend(batch)

    task = asyncio.create_task(reading())
    for begin in range(0, 30, 10):
        await record(bus, wanted[begin : begin + 5])
        await until(lambda count=begin + 5: len(seen) == count, "the events before the kill")
        await restart(bus, nats_server, until)
        await record(bus, wanted[begin + 5 : begin + 10])
        await until(lambda count=begin + 10: len(seen) == count, "the events after the restart")
    assert seen == wanted
    task.cancel()


async def test_a_message_of_another_kind_in_a_stream_is_skipped_by_a_reader_of_one_subject(bus: Bus) -> None:
    await append(bus, alone(history(4)), 0)
    subject = bus.subjects.event("NodeJoined")
    async with asyncio.timeout(10), aclosing(read_stream(bus, EVENTS, subject, 1)) as messages:
        async for message in messages:
            assert message.metadata.sequence.stream == 2
            break


async def restart(bus: Bus, server: "NatsServer", until: "Until") -> None:
    """kill -9 the server and start it again; return when the connection is back."""
    connections = bus.connections
    server.kill()
    server.start()
    await until(lambda: bus.connections > connections and bus.is_connected, "the reconnect")


# Copies of State


class Answers:
    """A master as far as it answers questions."""

    def __init__(self) -> None:
        self.state = State()
        self.asked = 0

    async def serve(self, bus: Bus) -> None:
        async def outcome(message_id: MessageId) -> list[Recorded]:
            return [one for one in history(20) if one.entry.cause_id == message_id]

        await answer_queries(bus, self._state, outcome)

    def _state(self) -> State:
        self.asked += 1
        return self.state

    def take(self, recorded: Sequence[Recorded]) -> None:
        for one in recorded:
            self.state = fold(self.state, one)


@asynccontextmanager
async def replica_of(bus: Bus, master: Answers, until: "Until") -> AsyncIterator[Replica]:
    async with following(bus) as replica:
        await until(lambda: replica.is_live, "the first answer")
        yield replica


async def test_a_replica_begins_with_a_masters_state_and_follows(bus: Bus, other_bus: Bus, until: "Until") -> None:
    master = Answers()
    master.take(history(10))
    await append(bus, alone(history(10)), 0)
    await master.serve(other_bus)
    async with replica_of(bus, master, until) as replica:
        assert replica.state == master.state
        heard: list[int] = []
        end = replica.listen(lambda state, recorded: heard.append(recorded.position if recorded else 0))
        await record(bus, history(5, after=10))
        assert await replica.wait_for(lambda state: state.position == 15, 10)
        assert heard == [11, 12, 13, 14, 15]
        end()
        await record(bus, history(1, after=15))
        assert await replica.wait_for(lambda state: state.position == 16, 10)
        assert heard[-1] == 15
    assert master.asked == 1


async def test_a_replica_is_not_live_before_a_master_answers(bus: Bus, other_bus: Bus, until: "Until") -> None:
    async with following(bus) as replica:
        assert not await replica.wait_for(lambda state: True, 0.3)
        assert not replica.is_live
        await Answers().serve(other_bus)
        await until(lambda: replica.is_live, "the first answer")


async def test_a_replica_that_finds_a_gap_asks_a_master_again(bus: Bus, other_bus: Bus, until: "Until") -> None:
    master = Answers()
    master.take(history(5))
    await append(bus, alone(history(5)), 0)
    await master.serve(other_bus)
    async with replica_of(bus, master, until) as replica:
        master.take(history(15, after=5))
        await begin_at(bus, 16)
        await record(bus, history(5, after=15))
        assert await replica.wait_for(lambda state: state.position == 20, 15)
        assert replica.state == master.state
    assert master.asked == 2


async def test_a_replica_outlives_a_kill_of_the_server(bus: Bus, nats_server: "NatsServer", until: "Until") -> None:
    other = await connect(nats_server.url, "test", "master")
    master = Answers()
    await master.serve(other)
    async with replica_of(bus, master, until) as replica:
        await restart(bus, nats_server, until)
        await record(bus, history(3))
        assert await replica.wait_for(lambda state: state.position == 3, 10)
    await other.close()
