"""The connection to NATS: waits for it, survives its restarts, and says so."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.errors import ServiceUnavailableError

import nats
from exo.bus.address import without_password
from exo.bus.streams import ensure_streams, incarnations
from exo.bus.subjects import Subjects
from exo.errors import Fatal, Retryable

logger = logging.getLogger(__name__)

CONNECT_PAUSE = 0.1
"""Seconds between two tries to reach the server; it opens its port within 15 ms of its start."""
JETSTREAM_PATIENCE = 10.0
"""Seconds that a server may take from an open port to a working JetStream."""
ATTEMPT_HEADER = "Exo-Attempt"
"""On a message that is sent again: the one before may have arrived all the same."""
WATCH_PAUSE = 2.0
"""Seconds between two looks at whether the streams are still those that this process reads."""
QUIET = 0.5
"""Seconds without NATS that are not worth a word: at a stop of the whole node it is the first to go."""
REQUEST_TIMEOUT = 2.0
"""Seconds for one answer of the server; those that count are asked again."""


class Bus:
    """One process' connection. `connections` grows with each reconnect, and when somebody made a stream anew: what was
    set up before is stale."""

    def __init__(self, client: Client, subjects: Subjects, url: str) -> None:
        """`url`: as it is shown, without a password."""
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=REQUEST_TIMEOUT)
        self.subjects = subjects
        self.url = url
        self.connections = 1
        self.incarnations: Mapping[str, datetime] = {}
        """When each stream was made, as of the last preparation: a stream that is another begins at 1 again."""
        self._on_reconnect: list[Callable[[], Awaitable[None]]] = []
        self._renewing = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the server can be reached now."""
        return self.client.is_connected

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and is there again."""
        return self.client.stats["reconnects"]

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have `callback` run after each reconnect, once the streams are there again."""
        self._on_reconnect.append(callback)

    async def close(self) -> None:
        """Send what is waiting to be sent, for at most half a second, and disconnect."""
        if self._watching is not None:
            self._watching.cancel()
        try:
            await self.client.flush(timeout=0.5)  # pyright: ignore[reportArgumentType]  takes fractions too
        except (NatsError, OSError, TimeoutError):
            logger.debug("NATS is gone already")
        # The client tries once more to send what is left, over the connection that is gone.
        with suppress(OSError, RuntimeError):
            await self.client.close()

    async def reconnected(self) -> None:
        """Bring back what a restart of the server lost: memory streams and buckets. Tries without end.

        The client calls this in a task of its own, which it cancels when the connection is lost again.
        """
        logger.info("reconnected to NATS at %s", self.url)
        async with self._renewing:
            await self._renew()

    def watch_streams(self) -> None:
        """From now on, bring back streams that somebody deleted, and notice those that somebody made anew."""
        self._watching = asyncio.create_task(self._watch_streams())

    async def _watch_streams(self) -> None:
        while True:
            await asyncio.sleep(WATCH_PAUSE)
            if not self.client.is_connected:
                continue
            async with self._renewing:
                if await self._streams_changed():
                    logger.warning("streams of NATS at %s were deleted or made anew; going on with new ones", self.url)
                    await self._renew()

    async def _streams_changed(self) -> bool:
        try:
            return await incarnations(self.js) != self.incarnations
        except (NatsError, TimeoutError):
            return False

    async def _renew(self) -> None:
        while True:
            try:
                await prepare_streams(self)
                break
            except Fatal as error:
                logger.error("%s; trying again", error)
                await asyncio.sleep(CONNECT_PAUSE)
        self.connections += 1
        for callback in self._on_reconnect:
            await callback()


async def connect(url: str, cluster: str, name: str) -> Bus:
    """A connection to the NATS server at `url`, waiting for it without end and saying so.

    Raises Fatal where the server has no JetStream or carries another cluster.
    """
    shown = without_password(url)
    await _wait_for_port(url)
    holder: list[Bus] = []

    async def disconnected() -> None:
        asyncio.get_running_loop().call_later(QUIET, say_lost)

    def say_lost() -> None:
        if holder and not holder[0].client.is_closed and not holder[0].is_connected:
            logger.warning("lost NATS at %s; reconnecting", shown)

    async def reconnected() -> None:
        if holder:
            await holder[0].reconnected()

    async def errored(error: Exception) -> None:
        logger.debug("NATS client: %r", error)

    client = await nats.connect(
        url,
        name=name,
        max_reconnect_attempts=-1,
        reconnect_time_wait=CONNECT_PAUSE,  # pyright: ignore[reportArgumentType]  takes fractions too
        disconnected_cb=disconnected,
        reconnected_cb=reconnected,
        error_cb=errored,
        pending_size=16 * 2**20,
    )
    bus = Bus(client, Subjects(cluster), shown)
    holder.append(bus)
    try:
        await prepare_streams(bus)
        bus.watch_streams()
    except BaseException:
        await client.close()
        raise
    return bus


async def prepare_streams(bus: Bus) -> None:
    """Make sure that the streams are there. Raises Fatal where JetStream stays away for JETSTREAM_PATIENCE."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + JETSTREAM_PATIENCE
    while True:
        try:
            await ensure_streams(bus.js, bus.subjects)
            bus.incarnations = await incarnations(bus.js)
            return
        except (NatsError, TimeoutError) as error:
            if loop.time() > deadline:
                raise _without_jetstream(bus.url, error) from error
            await asyncio.sleep(CONNECT_PAUSE)


async def publish(bus: Bus, subject: str, payload: bytes, message_id: str, patience: float) -> int:
    """Publish until the server has it on disk; its sequence number. Sent twice with one id, it is there once.

    Raises Retryable where that takes longer than `patience`, seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    headers = {"Nats-Msg-Id": message_id}
    attempt = 1
    while True:
        try:
            ack = await bus.js.publish(subject, payload, headers=headers, timeout=REQUEST_TIMEOUT)
            return ack.seq
        except (NatsError, TimeoutError) as error:
            if loop.time() > deadline:
                raise Retryable(f"NATS did not take the message within {patience:.0f} s: {error!r}") from error
            attempt += 1
            headers[ATTEMPT_HEADER] = str(attempt)
            await asyncio.sleep(CONNECT_PAUSE)


@contextmanager
def asking(what: str) -> Generator[None]:
    """Turns the client's errors into Retryable, which names what was asked of NATS."""
    try:
        yield
    except (NatsError, TimeoutError) as error:
        raise Retryable(f"{what}: {error!r}") from error


def new_id() -> str:
    """An id that nobody has used: 32 hexadecimal digits."""
    return uuid.uuid4().hex


async def _wait_for_port(url: str) -> None:
    address = urlsplit(url)
    said = False
    while True:
        try:
            _, writer = await asyncio.open_connection(address.hostname, address.port or 4222)
            writer.close()
            return
        except OSError:
            if not said:
                logger.info("waiting for NATS at %s", without_password(url))
                said = True
            await asyncio.sleep(CONNECT_PAUSE)


def _without_jetstream(url: str, error: Exception) -> Fatal:
    if isinstance(error, ServiceUnavailableError | NoRespondersError):
        return Fatal(f"the NATS server at {url} runs without JetStream: start it with -js, or use `exo nats`")
    return Fatal(f"JetStream at {url} cannot be used: {error!r}")
