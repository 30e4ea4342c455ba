"""Connecting, and the streams that are there afterwards."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats.js.api import RetentionPolicy, StorageType

from exo.bus import client
from exo.bus.client import Bus, connect, publish
from exo.bus.server import check_port, find_binary, listen_address, render_config
from exo.bus.streams import ensure_streams
from exo.domain.ids import NodeId
from exo.errors import Fatal, Retryable
from tests.stack import free_port

if TYPE_CHECKING:
    from conftest import NatsServer, Until

HOUR = 3600.0
DECLARED = {
    "INBOX": (["exo.test.cmd.>", "exo.test.report.>"], RetentionPolicy.WORK_QUEUE, StorageType.FILE, 0),
    "EVENTS": (["exo.test.event.>"], RetentionPolicy.LIMITS, StorageType.FILE, 0),
    "TASKS": (["exo.test.task.>"], RetentionPolicy.LIMITS, StorageType.FILE, 24 * HOUR),
    "REQUESTS": (["exo.test.request.>"], RetentionPolicy.LIMITS, StorageType.FILE, HOUR),
    "CHUNKS": (["exo.test.chunk.>"], RetentionPolicy.LIMITS, StorageType.MEMORY, HOUR),
    "KV_LEASE": (["$KV.LEASE.>"], RetentionPolicy.LIMITS, StorageType.MEMORY, 3),
    "KV_GAUGES": (["$KV.GAUGES.>"], RetentionPolicy.LIMITS, StorageType.MEMORY, 10),
    "OBJ_BLOBS": (["$O.BLOBS.C.>", "$O.BLOBS.M.>"], RetentionPolicy.LIMITS, StorageType.FILE, HOUR),
}


async def declared(bus: Bus) -> dict[str, tuple[object, ...]]:
    configs = [info.config for info in await bus.js.streams_info()]
    return {
        str(config.name): (sorted(config.subjects or []), config.retention, config.storage, config.max_age or 0)
        for config in configs
    }


async def test_the_streams_are_those_of_the_table(bus: Bus) -> None:
    assert await declared(bus) == DECLARED
    requests = (await bus.js.stream_info("REQUESTS")).config
    events = (await bus.js.stream_info("EVENTS")).config
    assert requests.max_msgs_per_subject == 1
    assert events.allow_atomic
    assert events.allow_direct


async def test_preparing_the_streams_again_changes_nothing_and_loses_nothing(bus: Bus) -> None:
    await publish(bus, bus.subjects.command("PlaceInstance"), b"{}", "m1", 5)
    await asyncio.gather(*(ensure_streams(bus.js, bus.subjects) for _ in range(4)))
    assert await declared(bus) == DECLARED
    assert (await bus.js.stream_info("INBOX")).state.messages == 1


async def test_a_stream_of_another_shape_is_brought_to_the_declared_one(bus: Bus) -> None:
    for name in ("TASKS", "EVENTS"):
        present = (await bus.js.stream_info(name)).config
        await bus.js.update_stream(present.evolve(max_age=600.0))
    await ensure_streams(bus.js, bus.subjects)
    assert await declared(bus) == DECLARED


async def test_a_server_that_carries_another_cluster_is_refused(bus: Bus, nats_server: "NatsServer") -> None:
    with pytest.raises(Fatal, match=r"another cluster.*exo\.test\.cmd.*EXO_CLUSTER"):
        await connect(nats_server.url, "other", "tester")


async def test_a_server_without_jetstream_is_refused_with_the_remedy(
    nats_server: "NatsServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "JETSTREAM_PATIENCE", 0.3)
    nats_server.kill()
    nats_server.start(jetstream=False)
    with pytest.raises(Fatal, match=r"without JetStream.*exo nats"):
        await connect(nats_server.url, "test", "tester")


async def test_connecting_waits_for_the_server_and_says_so(
    nats_server: "NatsServer", until: "Until", caplog: pytest.LogCaptureFixture
) -> None:
    nats_server.kill()
    with caplog.at_level(logging.INFO):
        connecting = asyncio.create_task(connect(nats_server.url, "test", "tester"))
        await until(lambda: "waiting for NATS" in caplog.text, "the line that says what is waited for")
        assert nats_server.url in caplog.text
        assert not connecting.done()
        nats_server.start()
        bus = await asyncio.wait_for(connecting, 10)
    assert bus.is_connected
    await bus.close()


async def test_a_restart_of_the_server_brings_the_memory_streams_back(
    bus: Bus, nats_server: "NatsServer", until: "Until"
) -> None:
    again = asyncio.Event()

    async def reconnected() -> None:
        again.set()

    bus.on_reconnect(reconnected)
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    nats_server.start()
    await asyncio.wait_for(again.wait(), 10)
    assert bus.connections == 2
    assert await declared(bus) == DECLARED


async def test_the_streams_come_back_however_long_jetstream_stays_away(
    bus: Bus,
    nats_server: "NatsServer",
    until: "Until",
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(client, "JETSTREAM_PATIENCE", 0.2)
    again = asyncio.Event()

    async def reconnected() -> None:
        again.set()

    bus.on_reconnect(reconnected)
    nats_server.kill()
    nats_server.start(jetstream=False)
    await until(lambda: "without JetStream" in caplog.text, "the line that says what is wrong")
    assert not again.is_set()
    nats_server.kill()
    nats_server.start()
    await asyncio.wait_for(again.wait(), 10)
    assert await declared(bus) == DECLARED


async def test_what_is_published_while_the_server_is_away_arrives_once(
    bus: Bus, nats_server: "NatsServer", until: "Until"
) -> None:
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    publishing = asyncio.create_task(publish(bus, bus.subjects.command("PlaceInstance"), b"{}", "m1", 20))
    nats_server.start()
    await asyncio.wait_for(publishing, 20)
    await publish(bus, bus.subjects.command("PlaceInstance"), b"{}", "m1", 5)
    assert (await bus.js.stream_info("INBOX")).state.messages == 1


async def test_a_server_that_stays_away_is_retryable(bus: Bus, nats_server: "NatsServer") -> None:
    nats_server.kill()
    with pytest.raises(Retryable, match="NATS did not take the message"):
        await publish(bus, bus.subjects.command("PlaceInstance"), b"{}", "m1", 0.2)


async def test_closing_does_not_wait_for_a_server_that_is_gone(nats_server: "NatsServer", until: "Until") -> None:
    bus = await connect(nats_server.url, "test", "tester")
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    await bus.client.publish("exo.test.beat.a.b", b"what is never sent")
    await asyncio.wait_for(bus.close(), 3)


# What `exo nats` checks before it becomes the server


def test_a_port_that_is_taken_is_refused_with_the_remedy(nats_server: "NatsServer", tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=rf"port {nats_server.port} .*is taken.*EXO_NATS_URL"):
        check_port("127.0.0.1", nats_server.port)
    with pytest.raises(Fatal, match="is taken"):
        render_config(tmp_path / "other", nats_server.url, NodeId("node-b"))


def test_another_machines_address_is_refused() -> None:
    with pytest.raises(Fatal, match=r"another machine \(192\.0\.2\.1\)"):
        listen_address("nats://192.0.2.1:4222")


def test_an_address_of_this_machine_is_listened_at() -> None:
    assert listen_address("nats://localhost") == ("127.0.0.1", 4222)
    assert listen_address("nats://127.0.0.1:5000") == ("127.0.0.1", 5000)


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    with pytest.raises(Fatal, match="cannot write NATS' files"):
        render_config(tmp_path / "home", f"nats://127.0.0.1:{free_port()}", NodeId("node-a"))


def test_the_binary_is_the_one_beside_this_python() -> None:
    assert find_binary().name == "nats-server"
