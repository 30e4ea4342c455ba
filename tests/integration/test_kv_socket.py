"""States of prompts over real sockets, with peers that behave and peers that do not."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from exo.domain.ids import TaskId
from exo.errors import Rejected, Retryable
from exo.runner.kv.fetching import fetch
from exo.runner.kv.form import AttentionState, Piece, PromptState
from exo.runner.kv.keys import new_key
from exo.runner.kv.outgoing import Outgoing
from exo.runner.kv.serving import PrefillServer
from exo.runner.kv.wire import End, Frame, Waiting, read_frame
from tests.integration.conftest import Until
from tests.kv_states import described, numbers

TASK = TaskId("task")
HOST = "127.0.0.1"
PATIENCE = 20.0
SHORT = 0.1
MEGABYTE = 1 << 20


class Serving:
    """A server, and the tasks of which it said that nobody waits for them any more."""

    def __init__(self, come: float = PATIENCE, take: float = PATIENCE) -> None:
        self.left: asyncio.Queue[TaskId] = asyncio.Queue()
        self.server = PrefillServer(self.left.put_nowait, come, take)
        self.port = 0

    async def fetched(self, key: str, patience: float = PATIENCE) -> PromptState:
        return await fetch(HOST, self.port, key, patience)

    async def next_left(self) -> TaskId:
        async with asyncio.timeout(PATIENCE):
            return await self.left.get()


@asynccontextmanager
async def serving(come: float = PATIENCE, take: float = PATIENCE) -> AsyncGenerator[Serving]:
    made = Serving(come, take)
    made.port = await made.server.start()
    try:
        yield made
    finally:
        await made.server.close()


def layer(megabytes: float = 0.01) -> AttentionState:
    """Of 8 tokens."""
    array = numbers((8, 1, int(megabytes * MEGABYTE / 64)))
    return AttentionState(array, array)


async def give(outgoing: Outgoing, layers: Sequence[AttentionState]) -> None:
    """Calls it in another thread, as an engine does."""

    def work() -> None:
        for number, state in enumerate(layers):
            outgoing(Piece(number, state))

    await asyncio.to_thread(work)


async def test_a_state_reaches_whoever_has_the_key() -> None:
    layers = [layer(), layer(3.5), layer()]
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        fetching = asyncio.create_task(it.fetched(key))
        await give(outgoing, layers)
        outgoing.done(8)
        assert described(await fetching) == described(PromptState(8, tuple(layers)))
        assert it.server.expected == 0
    assert it.left.empty()


async def test_what_was_computed_before_anybody_came_is_sent_too() -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        await give(outgoing, [layer()])
        outgoing.done(8)
        assert (await it.fetched(key)).tokens == 8


async def test_a_layer_is_sent_while_later_ones_are_still_computed() -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        reader, writer = await asyncio.open_connection(HOST, it.port)
        writer.write(key.encode())
        await give(outgoing, [layer()])
        async with asyncio.timeout(PATIENCE):
            header = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        assert b'"layer":0' in header
        writer.close()
        assert await it.next_left() == TASK


async def test_several_states_are_handed_out_side_by_side() -> None:
    async with serving() as it:
        keys = [new_key() for _ in range(4)]
        outgoings = [it.server.expect(TaskId(f"task-{number}"), key) for number, key in enumerate(keys)]
        fetching = [asyncio.create_task(it.fetched(key)) for key in reversed(keys)]
        for number, outgoing in enumerate(outgoings):
            await give(outgoing, [layer()] * (number + 1))
            outgoing.done(8)
        assert [len((await one).layers) for one in reversed(fetching)] == [1, 2, 3, 4]


async def test_the_reason_of_a_failure_reaches_the_other_runner() -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        outgoing.failed("no memory for it")
        with pytest.raises(Retryable, match="no memory for it"):
            await it.fetched(key)
    assert it.left.empty()


@pytest.mark.parametrize("shown", [b"0" * 64, b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64])
async def test_nothing_is_handed_out_for_another_key(shown: bytes) -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        reader, writer = await asyncio.open_connection(HOST, it.port)
        writer.write(shown)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()
        assert it.server.expected == 1
        outgoing.done(0)


async def test_a_key_is_good_for_one_time() -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        await give(outgoing, [layer()])
        outgoing.done(8)
        await it.fetched(key)
        with pytest.raises(Retryable, match="the connection ended before the state did"):
            await it.fetched(key)


async def test_what_is_no_key_or_in_use_is_refused() -> None:
    async with serving() as it:
        key = new_key()
        it.server.expect(TASK, key)
        for bad in ("", "x" * 64, key + "0", key):
            with pytest.raises(Rejected):
                it.server.expect(TASK, bad)


async def test_a_state_that_nobody_comes_for_is_given_up() -> None:
    async with serving(come=SHORT) as it:
        outgoing = it.server.expect(TASK, new_key())
        assert await it.next_left() == TASK
        assert it.server.expected == 0
        await give(outgoing, [layer()])
        outgoing.done(8)
    assert it.left.empty()


async def test_a_peer_that_leaves_has_the_engine_told_once(until: Until) -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        fetching = asyncio.create_task(it.fetched(key))
        await until(lambda: not it.server.expected, "the peer to come")
        fetching.cancel()
        assert await it.next_left() == TASK
        await give(outgoing, [layer()])
        outgoing.failed("cancelled")
    assert it.left.empty()


async def test_a_peer_of_an_engine_that_has_nothing_new_is_told_that_it_is_there() -> None:
    async with serving(take=4 * SHORT) as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        reader, writer = await asyncio.open_connection(HOST, it.port)
        writer.write(key.encode())
        async with asyncio.timeout(PATIENCE):
            assert await read_frame(reader.readexactly) == Waiting()
            assert await read_frame(reader.readexactly) == Waiting()
            outgoing.done(8)
            frame: Frame = Waiting()
            while frame == Waiting():
                frame = await read_frame(reader.readexactly)
        assert frame == End(8)
        writer.close()
    assert it.left.empty()


async def test_a_peer_that_takes_nothing_is_left_after_a_while() -> None:
    async with serving(take=SHORT) as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        _, writer = await asyncio.open_connection(HOST, it.port, limit=1)
        writer.write(key.encode())
        await give(outgoing, [layer(40)])
        assert await it.next_left() == TASK
        writer.close()


async def test_a_peer_that_says_nothing_is_left_after_a_while() -> None:
    async with serving() as it:
        key = new_key()
        it.server.expect(TASK, key)
        with pytest.raises(Retryable, match=r"nothing of the state came for 0\.1 s"):
            await it.fetched(key, SHORT)
        assert await it.next_left() == TASK


async def test_a_server_that_ends_in_the_middle_is_an_error(until: Until) -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        fetching = asyncio.create_task(it.fetched(key))
        await give(outgoing, [layer()])
        await until(lambda: not it.server.expected, "the peer to come")
    with pytest.raises(Retryable, match="the connection ended before the state did"):
        await fetching


async def test_a_place_where_nobody_listens_is_an_error() -> None:
    async with serving() as it:
        pass
    with pytest.raises(Retryable, match=f"{HOST}:{it.port} was not reached"):
        await it.fetched(new_key())


async def test_a_state_that_is_too_large_is_refused_before_it_is_here() -> None:
    async with serving() as it:
        key = new_key()
        outgoing = it.server.expect(TASK, key)
        await give(outgoing, [layer(2)])
        with pytest.raises(Retryable, match="larger than it may be"):
            await fetch(HOST, it.port, key, PATIENCE, most_bytes=MEGABYTE)
        assert await it.next_left() == TASK
