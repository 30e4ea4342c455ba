"""Hands out states of prompts while they are computed, each to whoever has its key."""

import asyncio
import hmac
import logging
from collections.abc import Callable

from exo.domain.ids import TaskId
from exo.errors import Rejected
from exo.runner.kv.keys import KEY_CHARACTERS, check_key
from exo.runner.kv.outgoing import Outgoing, OutgoingOver

logger = logging.getLogger(__name__)

EVERYWHERE = "0.0.0.0"
COME_PATIENCE = 10.0
"""Seconds within which whoever asked for a state comes for it."""
KEY_PATIENCE = 5.0
"""Seconds that a connection has to show its key."""
TAKE_PATIENCE = 30.0
"""Seconds that a part of a state may take to be received."""


class PrefillServer:
    """Listens at a port of its own. Lives on the event loop; only `Outgoing` is called from the engine's thread."""

    def __init__(
        self, on_left: Callable[[TaskId], None], come: float = COME_PATIENCE, take: float = TAKE_PATIENCE
    ) -> None:
        """`on_left` is called, once, for a state that nobody waits for any more and that was not handed out whole: the
        engine need not compute it. It has `come` seconds to be asked for, and each of its parts `take` to be received.
        """
        self._on_left = on_left
        self._come = come
        self._take = take
        self._expected: dict[str, Outgoing] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def expected(self) -> int:
        """States that nobody has come for yet."""
        return len(self._expected)

    async def start(self) -> int:
        """Listens. Gives the port, the same each time."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, EVERYWHERE, 0)
        return int(self._server.sockets[0].getsockname()[1])

    def expect(self, task_id: TaskId, key: str) -> Outgoing:
        """What takes the pieces of a task's state for whoever comes with `key`. Raises Rejected for what is no key, and
        for one that is in use.
        """
        check_key(key)
        if key in self._expected:
            raise Rejected("this key is another state's", param="key")
        loop = asyncio.get_running_loop()
        self._expected[key] = outgoing = Outgoing(task_id, loop)
        loop.call_later(self._come, self._forget, key, outgoing)
        return outgoing

    async def close(self) -> None:
        """Hands out nothing more."""
        for key, outgoing in list(self._expected.items()):
            self._forget(key, outgoing)
        for connection in self._connections:
            connection.cancel()
        if self._server is not None:
            self._server.close()

    def _forget(self, key: str, outgoing: Outgoing) -> None:
        if self._expected.get(key) is outgoing:
            del self._expected[key]
            self._left(outgoing, "nobody came for it")

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._answer(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            outgoing = await self._asked_for(reader)
            if outgoing is not None:
                await self._hand_out(outgoing, reader, writer)
        finally:
            await self._hang_up(writer)

    async def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        """Ends a connection, whatever the peer does with the last bytes."""
        writer.close()
        try:
            async with asyncio.timeout(self._take):
                await writer.wait_closed()
        except (TimeoutError, OSError):
            writer.transport.abort()

    async def _asked_for(self, reader: asyncio.StreamReader) -> Outgoing | None:
        """The state whose key a connection shows, which is good for one time; None for anything else."""
        try:
            async with asyncio.timeout(KEY_PATIENCE):
                shown = await reader.readexactly(KEY_CHARACTERS)
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            return None
        known = next((key for key in self._expected if hmac.compare_digest(key.encode(), shown)), None)
        return None if known is None else self._expected.pop(known)

    async def _hand_out(self, outgoing: Outgoing, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        why = "it could not be handed out"
        try:
            await outgoing.send(reader, writer, self._take)
        except OutgoingOver as left:
            why = str(left)
        finally:
            self._left(outgoing, why)  # which is nothing where all of it was sent

    def _left(self, outgoing: Outgoing, why: str) -> None:
        if outgoing.leave():
            logger.info("the state of %s is no longer wanted: %s", outgoing.task_id, why)
            self._on_left(outgoing.task_id)
