"""The stream `CHUNKS`: output on its way to the API process that asked, kept an hour. Sending never waits."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from pydantic import ValidationError

from exo.bus.client import Bus, asking
from exo.bus.reader import read_batches
from exo.bus.streams import CHUNKS
from exo.domain.ids import ApiId, TaskId
from exo.domain.messages.chunks import ChunkGenerated, Piece

logger = logging.getLogger(__name__)

ENDED_KEPT = 64
"""Ended generations whose chunks are sent again after a reconnect: the server may have died with them."""
ENDED_BYTES = 64 * 2**20
"""Of those chunks, all together: vectors are large."""
READING = 10.0
"""Seconds for what the stream holds of one generation."""

Unfollow = Callable[[], Coroutine[object, object, None]]


class ChunkPublisher:
    """Sends the chunks of a runner's generations, numbered. After a reconnect it sends those of the live ones, and of
    the last that ended, again: what was on the way when the server died is lost without a sign, and readers drop by
    number what they have."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sent: OrderedDict[TaskId, tuple[str, list[bytes]]] = OrderedDict()
        self._ended: OrderedDict[TaskId, int] = OrderedDict()
        """The bytes of each."""
        bus.on_reconnect(self._send_again)

    def begin(self, task_id: TaskId, reply_to: ApiId) -> None:
        """A generation starts."""
        self._sent[task_id] = (self._bus.subjects.chunk(reply_to, task_id), [])

    async def send(self, task_id: TaskId, piece: Piece) -> None:
        """The next chunk of a generation that has begun."""
        subject, sent = self._sent[task_id]
        payload = ChunkGenerated(task_id=task_id, index=len(sent), piece=piece).model_dump_json().encode()
        sent.append(payload)
        await self._publish(subject, payload)

    def end(self, task_id: TaskId) -> None:
        """A generation is over."""
        self._ended[task_id] = sum(map(len, self._sent[task_id][1]))
        while len(self._ended) > ENDED_KEPT or sum(self._ended.values()) > ENDED_BYTES:
            oldest, _ = self._ended.popitem(last=False)
            self._sent.pop(oldest, None)

    async def _publish(self, subject: str, payload: bytes) -> None:
        try:
            await self._bus.client.publish(subject, payload)
        except NatsError as error:
            logger.debug("a chunk waits for the reconnect: %r", error)

    async def _send_again(self) -> None:
        for subject, payloads in list(self._sent.values()):
            for payload in payloads:
                await self._publish(subject, payload)


async def subscribe_chunks(bus: Bus, api_id: ApiId, receive: Callable[[ChunkGenerated], None]) -> None:
    """Have `receive` called with each chunk for an API process, for as long as the connection lives."""
    await _subscribe(bus, bus.subjects.chunks_for(api_id), receive)


async def follow_chunks(bus: Bus, task_id: TaskId, receive: Callable[[ChunkGenerated], None]) -> Unfollow:
    """Have `receive` called with each further chunk of one generation, until what this gives is called.

    Raises Retryable where NATS stays away.
    """
    with asking("chunks cannot be followed"):
        subscription = await _subscribe(bus, bus.subjects.chunks_of(task_id), receive)

    async def unfollow() -> None:
        try:
            await subscription.unsubscribe()
        except NatsError as error:
            logger.debug("unsubscribing: %r", error)

    return unfollow


async def read_chunks(bus: Bus, task_id: TaskId, first: int) -> list[ChunkGenerated]:
    """The chunks of a generation that the stream holds, from the index `first` on. Raises Retryable."""
    subject = bus.subjects.chunks_of(task_id)
    chunks: list[ChunkGenerated] = []
    with asking("CHUNKS cannot be read"):
        try:
            await bus.js.get_msg(CHUNKS, seq=1, subject=subject, next=True)
        except NotFoundError:
            return chunks
        async with asyncio.timeout(READING), aclosing(read_batches(bus, CHUNKS, subject, 1)) as batches:
            async for batch in batches:
                chunks += [chunk for message in batch if (chunk := _chunk_in(message)) is not None]
                if batch[-1].metadata.num_pending == 0:
                    break
    return [chunk for chunk in chunks if chunk.index >= first]


async def delete_chunks(bus: Bus, task_id: TaskId) -> None:
    """Have the stream forget what it holds of a generation. Raises Retryable."""
    with asking("CHUNKS cannot be changed"):
        await bus.js.purge_stream(CHUNKS, subject=bus.subjects.chunks_of(task_id))


async def _subscribe(bus: Bus, subject: str, receive: Callable[[ChunkGenerated], None]) -> Subscription:
    async def received(message: Msg) -> None:
        if (chunk := _chunk_in(message)) is not None:
            receive(chunk)

    callback: Callable[[Msg], Awaitable[None]] = received
    return await bus.client.subscribe(subject, cb=callback)


def _chunk_in(message: Msg) -> ChunkGenerated | None:
    try:
        return ChunkGenerated.model_validate_json(message.data)
    except ValidationError as error:
        logger.warning("an unreadable chunk on %s: %s", message.subject, error)
        return None
