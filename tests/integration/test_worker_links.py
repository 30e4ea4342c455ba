"""Links that are measured over real sockets: only who is who was looked for counts."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from exo.domain.ids import NodeId
from exo.domain.node import Interface
from exo.domain.state import Node, State
from exo.node.probe import Identity, identified, probe
from exo.worker.links import MISSES, Links
from tests import builders

HERE = "127.0.0.1"
A, B = Identity("home", NodeId("a"), "boot-a"), Identity("home", NodeId("b"), "boot-b")


def node(identity: Identity, port: int) -> Node:
    interfaces = (Interface(name="eth0", addresses=("127.0.0.2",)),)
    facts = builders.facts(interfaces=interfaces, probe_port=port)
    return builders.node(identity.node_id, boot_id=identity.boot_id, facts=facts)


async def test_who_is_looked_for_answers_with_the_time_and_this_sides_address() -> None:
    async with identified(A) as port:
        answer = await probe(HERE, port, A)
    assert answer is not None
    assert answer.local_address == HERE
    assert 0 < answer.round_trip_ms < 1000


@pytest.mark.parametrize(
    "other",
    [B, Identity("work", NodeId("a"), "boot-a"), Identity("home", NodeId("a"), "an earlier start")],
    ids=["another node", "another cluster", "another start"],
)
async def test_somebody_else_does_not_count(other: Identity) -> None:
    async with identified(other) as port:
        assert await probe(HERE, port, A) is None


async def test_nobody_does_not_count() -> None:
    async with identified(A) as port:
        pass
    assert await probe(HERE, port, A) is None


@pytest.mark.parametrize("said", [b"", b"x" * 10_000, b"\xff\n", None], ids=["nothing", "much", "garbage", "silence"])
async def test_a_stranger_does_not_count(said: bytes | None) -> None:
    done = asyncio.Event()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if said is None:
            await done.wait()
        else:
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, HERE, 0)
    async with server:
        assert await probe(HERE, server.sockets[0].getsockname()[1], A, patience=0.2) is None
        done.set()


async def test_two_workers_on_one_machine_find_each_other() -> None:
    async with identified(A) as port_a, identified(B) as port_b:
        cluster = builders.state([node(A, port_a), node(B, port_b)])
        found = [await Links("home", one.node_id).measure(cluster) for one in (A, B)]
    assert [[(link.to, link.kind, link.address) for link in links] for links in found] == [
        [("b", "loopback", "127.0.0.1"), ("b", "loopback", "127.0.0.2")],
        [("a", "loopback", "127.0.0.1"), ("a", "loopback", "127.0.0.2")],
    ]


async def test_measuring_again_changes_nothing() -> None:
    async with identified(B) as port:
        cluster, links = builders.state([node(A, 1), node(B, port)]), Links("home", A.node_id)
        first = await links.measure(cluster)
        assert first
        assert await links.measure(cluster) == first


async def test_a_link_is_gone_after_several_misses_and_not_before() -> None:
    links = Links("home", A.node_id)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(identified(B))
        cluster = builders.state([node(A, 1), node(B, port)])
        first = await links.measure(cluster)
    for _ in range(MISSES - 1):
        assert await links.measure(cluster) == first
    assert await links.measure(cluster) == ()


async def test_a_node_that_is_not_in_the_cluster_any_more_has_no_link() -> None:
    links = Links("home", A.node_id)
    async with identified(B) as port:
        assert await links.measure(builders.state([node(A, 1), node(B, port)]))
        assert await links.measure(builders.state([node(A, 1)])) == ()
        assert await links.measure(State()) == ()
