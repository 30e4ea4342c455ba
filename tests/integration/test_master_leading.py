"""A master in this process, on a real server with a real log: what it records, drops, repeats and survives."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from log_events import CARD, INSTANCE, NODE, RUNNER, history

from exo.bus.client import ATTEMPT_HEADER, Bus, connect, publish
from exo.bus.events import append, bounds
from exo.bus.gauges import publish_gauges
from exo.bus.inbox import send_command, send_report
from exo.bus.lease import holder
from exo.bus.queries import ask_outcome, ask_state
from exo.bus.streams import EVENTS, INBOX
from exo.bus.tasks import follow_tasks
from exo.domain.ids import ApiId, InstanceId, MessageId, ModelId, NodeId, TaskId
from exo.domain.messages.commands import CancelGeneration, Command, PlaceInstance, StartGeneration
from exo.domain.messages.envelope import Envelope
from exo.domain.messages.events import CommandRejected, Entry, InstanceDeleted, InstancePlaced, MasterElected, Recorded
from exo.domain.messages.reports import NodeLeft
from exo.domain.messages.tasks import GenerateTask
from exo.domain.node import NodeGauges
from exo.domain.state import State
from exo.errors import ExoError, Fatal, Retryable
from exo.log.replay import load_state
from exo.log.store import LogStore
from exo.master.main import Master

if TYPE_CHECKING:
    from conftest import NatsServer, Until

A, B = NodeId("node-a"), NodeId("node-b")
UNKNOWN = PlaceInstance(model_id=ModelId("maker/unknown"))


class Running:
    """A master at work."""

    def __init__(self, master: Master, store: LogStore, bus: Bus) -> None:
        self.master = master
        self.store = store
        self.task = asyncio.create_task(master.run())
        self._bus = bus

    @property
    def state(self) -> State:
        return self.master.state

    async def stop(self) -> None:
        """As its process does at its end."""
        self.task.cancel()
        with suppress(asyncio.CancelledError, ExoError):
            await self.task
        await self.master.stop()
        await self.store.close()
        await self._bus.close()


@asynccontextmanager
async def running(server: "NatsServer", home: Path, node_id: NodeId = A) -> AsyncIterator[Running]:
    store = await LogStore.open(home / "exo.sqlite3", durable=False)
    bus = await connect(server.url, "test", "master")
    master = Running(Master(bus, store, node_id, await load_state(store)), store, bus)
    try:
        yield master
    finally:
        await master.stop()


async def preloaded(home: Path, recorded: list[Recorded]) -> None:
    store = await LogStore.open(home / "exo.sqlite3", durable=False)
    await store.append(recorded)
    await store.close()


async def logged(home: Path) -> list[Recorded]:
    store = await LogStore.open(home / "exo.sqlite3", read_only=True)
    found = [recorded async for recorded in store.stream()]
    await store.close()
    return found


async def streamed(bus: Bus) -> list[str]:
    """The types of all events in the stream."""
    first, last = await bounds(bus)
    messages = [await bus.js.get_msg(EVENTS, seq=position, direct=True) for position in range(first, last + 1)]
    return [message.subject.rsplit(".", 1)[-1] for message in messages]


async def outcome(bus: Bus, message_id: MessageId) -> list[Recorded]:
    """The events of a message, once there are any."""
    async with asyncio.timeout(15):
        while not (found := await ask_outcome(bus, message_id, 5)):
            pass
    return found


async def resend(bus: Bus, message_id: MessageId, command: Command, as_try: int = 2) -> None:
    """The same message once more, as the server takes it when it no longer remembers the first."""
    envelope = Envelope(message_id=message_id, source="api", sent_at=1, body=command).model_dump_json().encode()
    headers = {"Nats-Msg-Id": f"{message_id}-{as_try}", ATTEMPT_HEADER: str(as_try)}
    await bus.js.publish(bus.subjects.command(command.type), envelope, headers=headers)


async def inbox_is_empty(bus: Bus) -> None:
    async with asyncio.timeout(15):
        while (await bus.js.stream_info(INBOX)).state.messages:
            pass


def elected(node_id: NodeId, epoch: int) -> Callable[[Running], Callable[[], bool]]:
    return lambda master: lambda: (master.state.master, master.state.epoch) == (node_id, epoch)


# Commands


async def test_the_first_thing_that_a_leader_records_is_its_election(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    async with running(nats_server, tmp_path) as master:
        await until(elected(A, 1)(master), "the election")
        assert await holder(bus) == A
        assert await ask_state(bus, 5) == master.state
    (first,) = await logged(tmp_path)
    assert first.entry.event == MasterElected(node_id=A, epoch=1)
    assert first.entry.cause_id is None


async def test_a_command_ends_in_events_that_name_it(bus: Bus, nats_server: "NatsServer", tmp_path: Path) -> None:
    async with running(nats_server, tmp_path) as master:
        message_id = await send_command(bus, "api-1", UNKNOWN)
        (recorded,) = await outcome(bus, message_id)
        assert isinstance(recorded.entry.event, CommandRejected)
        assert recorded.entry.event.code == "model_not_found"
        assert (recorded.entry.cause_id, recorded.entry.source) == (message_id, "api-1")
        assert master.state.position == recorded.position
        await inbox_is_empty(bus)
    assert (await logged(tmp_path))[-1] == recorded


async def test_many_commands_end_each_in_their_events_and_in_order(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    async with running(nats_server, tmp_path):
        sent = await asyncio.gather(*(send_command(bus, "api", UNKNOWN) for _ in range(300)))
        await asyncio.gather(*(outcome(bus, message_id) for message_id in sent[-3:]))
        await inbox_is_empty(bus)
    causes = [recorded.entry.cause_id for recorded in await logged(tmp_path)]
    assert causes[0] is None
    assert sorted(causes[1:]) == sorted(sent)


async def test_a_report_that_no_longer_applies_leaves_nothing_but_an_empty_inbox(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    async with running(nats_server, tmp_path):
        await send_report(bus, "worker", NodeLeft(node_id=B, boot_id="boot"))
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
        await inbox_is_empty(bus)
    assert len(await logged(tmp_path)) == 2


async def test_a_message_that_comes_twice_has_one_effect(bus: Bus, nats_server: "NatsServer", tmp_path: Path) -> None:
    async with running(nats_server, tmp_path):
        message_id = await send_command(bus, "api", UNKNOWN)
        await outcome(bus, message_id)
        await resend(bus, message_id, UNKNOWN)
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
        await inbox_is_empty(bus)
        assert len(await ask_outcome(bus, message_id, 5)) == 1
    assert len(await logged(tmp_path)) == 3


async def test_a_message_that_comes_twice_at_once_has_one_effect(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    message_id = MessageId("m1")
    for as_try in (2, 3, 4):
        await resend(bus, message_id, UNKNOWN, as_try)
    async with running(nats_server, tmp_path):
        assert len(await outcome(bus, message_id)) == 1
        await inbox_is_empty(bus)
    assert len(await logged(tmp_path)) == 2


async def test_a_message_that_an_earlier_leader_acted_on_and_did_not_acknowledge_has_one_effect(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    async with running(nats_server, tmp_path):
        message_id = await send_command(bus, "api", UNKNOWN)
        await outcome(bus, message_id)
        await inbox_is_empty(bus)
    envelope = Envelope(message_id=message_id, source="api", sent_at=1, body=UNKNOWN).model_dump_json().encode()
    await publish(bus, bus.subjects.command("PlaceInstance"), envelope, "forgotten", 5)
    async with running(nats_server, tmp_path):
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
        await inbox_is_empty(bus)
    assert [recorded.entry.cause_id for recorded in await logged(tmp_path)].count(message_id) == 1


async def test_an_unreadable_message_is_dropped_and_said(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(nats_server, tmp_path):
        await publish(bus, bus.subjects.command("PlaceInstance"), b'{"type": "PlaceInstance"}', "bad", 5)
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
        await inbox_is_empty(bus)
    assert "dropped an unreadable message on exo.test.cmd.PlaceInstance" in caplog.text
    assert len(await logged(tmp_path)) == 2


async def test_a_decision_that_fails_is_a_rejection_and_the_next_one_is_made(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await preloaded(tmp_path, two_instances_with_one_runner())
    async with running(nats_server, tmp_path):
        message_id = await send_command(bus, "api", start("t1"))
        (recorded,) = await outcome(bus, message_id)
        assert isinstance(recorded.entry.event, CommandRejected)
        assert recorded.entry.event.code == "internal_error"
        assert "deciding on StartGeneration failed" in caplog.text
        assert "Traceback" in caplog.text
        again = await outcome(bus, await send_command(bus, "api", UNKNOWN))
        assert isinstance(again[0].entry.event, CommandRejected)
        assert again[0].entry.event.code == "model_not_found"


def two_instances_with_one_runner() -> list[Recorded]:
    """A history that no decision would make, and that a decision on a request for its model cannot deal with."""
    recorded = history(3)
    placed = recorded[2].entry.event
    assert isinstance(placed, InstancePlaced)
    second = placed.instance.model_copy(update={"instance_id": InstanceId("instance-b")})
    for event in (InstancePlaced(instance=second, reason=""), InstanceDeleted(instance_id=INSTANCE, reason="")):
        entry = Entry(recorded_at=recorded[-1].entry.recorded_at, cause_id=None, source="test", event=event)
        recorded.append(Recorded(position=len(recorded) + 1, entry=entry))
    return recorded


def start(task: str) -> StartGeneration:
    return StartGeneration(
        task_id=TaskId(task), model_id=CARD.model_id, estimated_tokens=1, key="anna", reply_to=ApiId("api")
    )


# Taking over


async def test_tasks_that_an_earlier_leader_may_not_have_published_are_published(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    await preloaded(tmp_path, history(7))
    async with (
        running(nats_server, tmp_path),
        asyncio.timeout(15),
        aclosing(follow_tasks(bus, INSTANCE, 0)) as tasks,
    ):
        async for task in tasks:
            assert task == GenerateTask(task_id=TaskId("task-0"), reply_to=ApiId("api"), processes=("process-a",))
            break


async def test_a_cancellation_that_was_recorded_is_published_after_its_task(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    await preloaded(tmp_path, history(7))
    async with running(nats_server, tmp_path):
        await outcome(bus, await send_command(bus, "api", CancelGeneration(task_id=TaskId("task-0"), reason="")))
    types: list[str] = []
    async with asyncio.timeout(15), aclosing(follow_tasks(bus, INSTANCE, 0)) as tasks:
        async for task in tasks:
            types.append(task.type)
            if len(types) == 2:
                break
    assert types == ["GenerateTask", "CancelTask"]


async def test_a_second_master_follows_and_leads_when_the_first_stops(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    async with running(nats_server, tmp_path / "b", B) as second:
        async with running(nats_server, tmp_path / "a", A) as first:
            await until(lambda: first.state.epoch == 1 and second.state == first.state, "one leader, one follower")
            leader, follower = (first, second) if first.state.master == A else (second, first)
            await outcome(bus, await send_command(bus, "api", UNKNOWN))
            await until(lambda: follower.state == leader.state, "the follower to follow")
        await until(lambda: second.state.master == B, "the second to lead")
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
    ours = await logged(tmp_path / "b")
    theirs = await logged(tmp_path / "a")
    assert ours[: len(theirs)] == theirs
    epochs = [one.entry.event.epoch for one in ours if isinstance(one.entry.event, MasterElected)]
    assert epochs == list(range(1, len(epochs) + 1))


async def test_a_leader_that_somebody_overtook_writes_nothing_more_and_takes_in_what_was_written(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    async with running(nats_server, tmp_path) as master:
        await until(elected(A, 1)(master), "the election")
        intruder = Entry(
            recorded_at=master.state.time, cause_id=None, source="b", event=MasterElected(node_id=B, epoch=2)
        )
        await append(bus, [[intruder]], master.state.position)
        message_id = await send_command(bus, "api", UNKNOWN)
        await until(elected(A, 3)(master), "the next election")
        await outcome(bus, message_id)
        await inbox_is_empty(bus)
    events = [recorded.entry.event for recorded in await logged(tmp_path)]
    assert [event.type for event in events] == ["MasterElected"] * 3 + ["CommandRejected"]
    assert events[1] == intruder.event


async def test_a_leader_whose_inbox_is_taken_leads_again(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    async with running(nats_server, tmp_path) as master:
        await until(elected(A, 1)(master), "the election")
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
        await bus.js.delete_consumer(INBOX, "master")
        message_id = await send_command(bus, "api", UNKNOWN)
        await outcome(bus, message_id)
        assert not master.task.done()


# The server


@pytest.mark.parametrize("way", ["kill", "stop"])
async def test_a_leader_outlives_the_end_of_the_server(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until", way: str
) -> None:
    async with running(nats_server, tmp_path) as master:
        first = await send_command(bus, "api", UNKNOWN)
        await outcome(bus, first)
        for _ in range(2):
            getattr(nats_server, way)()
            await until(lambda: not bus.is_connected, "the loss to be noticed")
            nats_server.start()
            await outcome(bus, await send_command(bus, "api", UNKNOWN, 20))
        assert not master.task.done()
        assert [one.entry.cause_id for one in await logged(tmp_path)].count(first) == 1


async def test_a_server_that_lost_its_store_gets_the_events_back(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    async with running(nats_server, tmp_path) as master:
        await outcome(bus, await send_command(bus, "api", UNKNOWN))
        nats_server.kill()
        await until(lambda: not bus.is_connected, "the loss to be noticed")
        nats_server.forget()
        nats_server.start()
        await outcome(bus, await send_command(bus, "api", UNKNOWN, 20))
        assert not master.task.done()
    types = [recorded.entry.event.type for recorded in await logged(tmp_path)]
    assert types[:2] == ["MasterElected", "CommandRejected"]
    assert await streamed(bus) == types


async def test_a_stream_of_another_cluster_ends_the_master_with_the_position(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    await preloaded(tmp_path, history(10))
    other = [
        recorded.model_copy(update={"entry": recorded.entry.model_copy(update={"source": "other"})})
        for recorded in history(5)
    ]
    await append(bus, [[recorded.entry] for recorded in other], 0)
    async with running(nats_server, tmp_path) as master:
        with pytest.raises(Fatal, match="different events from position 1 on"):
            await asyncio.wait_for(master.task, 15)


# Nodes


async def test_a_node_is_lost_when_it_shows_nothing_for_its_deadline_and_not_before_a_new_leader_waited_as_long(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path
) -> None:
    await preloaded(tmp_path, history(5))
    gauges = NodeGauges(node_id=NODE, memory_available_bytes=1, disk_free_bytes=1, cpu_load=0)
    async with running(nats_server, tmp_path) as master:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(30):
            while loop.time() - began < 3:
                await publish_gauges(bus, gauges)
            while NODE in master.state.nodes:  # noqa: ASYNC110  nothing says when
                await asyncio.sleep(0.05)
        assert 12 < loop.time() - began < 25
        assert RUNNER not in master.state.runners


# The end


async def test_a_master_that_stops_leaves_a_snapshot_and_a_free_lease(
    bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    async with running(nats_server, tmp_path) as master:
        await until(elected(A, 1)(master), "the election")
        state = master.state
    assert await holder(bus) is None
    store = await LogStore.open(tmp_path / "exo.sqlite3", read_only=True)
    assert await store.latest_snapshot() == state
    await store.close()


async def test_a_master_that_stops_does_not_wait_for_a_server_that_is_gone(
    nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> None:
    async with running(nats_server, tmp_path) as master:
        await until(elected(A, 1)(master), "the election")
        state = master.state
        nats_server.kill()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 4
    store = await LogStore.open(tmp_path / "exo.sqlite3", read_only=True)
    assert await store.latest_snapshot() == state
    await store.close()


async def test_a_question_without_a_master_is_retryable(bus: Bus) -> None:
    with pytest.raises(Retryable):
        await ask_state(bus, 0.2)
