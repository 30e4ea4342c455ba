"""Who is at an address: each worker listens at a port and says in one line who it is.

A connection alone proves nothing: 127.0.0.1 is every machine's own, and a private address may be somebody else's.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from exo.domain.ids import NodeId

EVERYWHERE = "0.0.0.0"
"""IPv4 alone: mlx.distributed's ring takes no other addresses."""
PATIENCE = 1.0
"""Seconds that an answer may take; a link that needs longer is of no use for tensors."""
LINE_MOST = 512
"""Bytes; whoever says more is no worker."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker is."""

    cluster: str
    node_id: NodeId
    boot_id: str

    def line(self) -> bytes:
        """As it is said."""
        return f"exo {self.cluster} {self.node_id} {self.boot_id}\n".encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a connection to somebody who is who was looked for."""

    round_trip_ms: float
    """From the first packet to the connection."""
    local_address: str
    """This side's: it tells the interface."""


@asynccontextmanager
async def identified(identity: Identity) -> AsyncGenerator[int]:
    """Answer whoever connects, for as long as the block runs. Gives the port."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(identity.line())
        writer.close()

    server = await asyncio.start_server(answer, EVERYWHERE, 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def probe(address: str, port: int, wanted: Identity, patience: float = PATIENCE) -> Answer | None:
    """What a connection gave; None where nobody answers in `patience` seconds, or somebody else does."""
    try:
        async with asyncio.timeout(patience):
            started = time.monotonic()
            reader, writer = await asyncio.open_connection(address, port, limit=LINE_MOST)
            taken = time.monotonic() - started
            try:
                local_address = str(writer.get_extra_info("sockname")[0])
                said = await reader.readline()
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError):  # ValueError: of a line that is too long
        return None
    return Answer(1000 * taken, local_address) if said == wanted.line() else None
