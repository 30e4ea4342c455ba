"""A rank that is told of the others, meets them, and notices that one is silent."""

import asyncio
import threading

import pytest

from exo.bus.beats import publish_beat
from exo.bus.client import Bus
from exo.bus.tasks import last_task, publish_task
from exo.domain.ids import InstanceId, NodeId, RunnerId
from exo.domain.messages.beat import RunnerBeat
from exo.domain.messages.tasks import ConnectTask
from exo.domain.runner_spec import RunnerSpec
from exo.domain.runner_status import Failed
from exo.errors import Retryable
from exo.models.scripted import SCRIPTED_CARD
from exo.runner.engine_thread import EngineThread
from exo.runner.engines.ranks import Peers
from exo.runner.engines.scripted import ScriptedEngine
from exo.runner.main import failed
from exo.runner.peers import PeerLost, PeerWatch, lost_connection, meet, peers, told_peers
from tests import builders
from tests.integration.conftest import Settled, Until

PROCESSES = ("process-0", "process-1", "process-2")


SHARDS = [
    shard.model_copy(update={"host": f"10.0.0.{shard.rank}"})
    for shard in builders.shards(builders.whole(SCRIPTED_CARD), "tensor", 3)
]


def spec(rank: int = 0, **instance: object) -> RunnerSpec:
    return RunnerSpec(
        process=PROCESSES[rank],
        instance=builders.instance(*SHARDS, engine="scripted", **instance),
        shard=SHARDS[rank],
        folder="",
        cache_dir="",
        nats_url="",
        cluster="test",
        log_level="INFO",
    )


CONNECT = ConnectTask(processes=PROCESSES, addresses=("10.0.0.0:1", "10.0.0.1:2", "10.0.0.2:3"))


def beat(rank: int, process: str | None = None) -> RunnerBeat:
    return RunnerBeat(
        runner_id=RunnerId(f"runner-{rank}"), process=process or PROCESSES[rank], in_flight=0, step_seconds=0
    )


async def test_a_rank_waits_for_the_group_that_its_own_process_is_in(bus: Bus) -> None:
    after = await last_task(bus)
    earlier = ConnectTask(processes=("older-0", "older-1", "older-2"), addresses=CONNECT.addresses)
    await publish_task(bus, InstanceId("instance"), earlier)
    await publish_task(bus, InstanceId("instance"), CONNECT)
    async with asyncio.timeout(10):
        assert await told_peers(bus, spec(), after) == CONNECT


async def test_a_silent_rank_is_named_and_a_later_process_of_it_is_no_sign_of_life(
    bus: Bus, other_bus: Bus, settled: Settled, until: Until
) -> None:
    now = 0.0
    watch = PeerWatch(bus, spec(), PROCESSES, clock=lambda: now)
    watch.patience = 4.0
    await watch.listen()
    await settled(bus)
    now = 3.0
    await publish_beat(other_bus, NodeId("node-2"), beat(2, "a later one"))
    await publish_beat(other_bus, NodeId("node-1"), beat(1))
    await until(lambda: watch.silent(2.0) == [SHARDS[2]], "the beat of rank 1")
    now = 5.0
    with pytest.raises(PeerLost, match=r"^rank 2 on node node-2: no sign of life for 4 s$") as lost:
        async with asyncio.timeout(10):
            await watch.run()
    assert failed(lost.value) == Failed(reason="no sign of life for 4 s", lost=(2,))


def test_of_a_lost_connection_all_others_are_suspects() -> None:
    lost = lost_connection(spec(1), RuntimeError("[ring] end of stream"))
    assert failed(lost) == Failed(reason="the connection to one of them was lost ([ring] end of stream)", lost=(0, 2))


async def test_ranks_that_do_not_meet_are_an_error_with_a_reason(bus: Bus) -> None:
    class Alone(ScriptedEngine):
        def join(self, peers: Peers) -> None:
            threading.Event().wait()

    thread = EngineThread(Alone(), slots=1)
    thread.start()
    with pytest.raises(Retryable, match=r"did not meet over ring within 0 s: all live, at 10\.0\.0\.0:1"):
        await meet(thread, peers(spec(), CONNECT), PeerWatch(bus, spec(), PROCESSES), patience=0.2)


def test_jaccl_is_coordinated_at_the_address_by_which_each_reaches_rank_0() -> None:
    devices = (("", "rdma_en2", "rdma_en3"), ("rdma_en2", "", "rdma_en4"), ("rdma_en3", "rdma_en4", ""))
    found = peers(
        spec(2, backend="jaccl", rdma_devices=devices, coordinators=("0.0.0.0", "10.1.0.1", "10.2.0.1")), CONNECT
    )
    assert found == Peers(2, CONNECT.addresses, "jaccl", devices, "10.2.0.1:1")
    assert peers(spec(2), CONNECT).coordinator == "10.0.0.0:1"
