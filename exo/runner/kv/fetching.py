"""Fetches the state of a prompt from the runner that computes it."""

import asyncio
from collections.abc import Awaitable, Callable

from exo.errors import Retryable
from exo.runner.kv.assembling import Assembly
from exo.runner.kv.form import Piece, PromptState
from exo.runner.kv.wire import End, Failure, Waiting, read_frame

CHUNK = 1 << 20
"""Bytes that are waited for at a time."""
STATE_MOST = 1 << 36
"""Bytes of a whole state, 64 GiB, beyond which it is refused."""


class _Source:
    """The bytes of one connection, each part within a deadline and all together within a bound."""

    def __init__(self, reader: asyncio.StreamReader, patience: float, most_bytes: int) -> None:
        self._reader = reader
        self._patience = patience
        self._left = most_bytes

    async def read(self, count: int) -> bytes:
        """Exactly so many bytes. Raises Retryable where they are too many, or do not come."""
        self._left -= count
        if self._left < 0:
            raise Retryable(f"the state is larger than it may be, by {-self._left} bytes so far")
        parts: list[bytes] = []
        while count:
            parts.append(await self._part(min(count, CHUNK)))
            count -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _part(self, count: int) -> bytes:
        try:
            async with asyncio.timeout(self._patience):
                return await self._reader.readexactly(count)
        except TimeoutError as error:
            raise Retryable(f"nothing of the state came for {self._patience:g} s") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Retryable("the connection ended before the state did") from error


OnPiece = Callable[[Piece], Awaitable[None]]
"""Is told of each piece that came."""


async def fetch(
    host: str, port: int, key: str, patience: float, most_bytes: int = STATE_MOST, on_piece: OnPiece | None = None
) -> PromptState:
    """The state that is handed out at `host:port` for this key.

    It may take long, but `patience`, in seconds, is the most without a part of it. Raises Retryable with the reason
    where nobody is there, the other fails or leaves, what comes is no state, or more than `most_bytes`.
    """
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(host, port, limit=CHUNK)
    except (OSError, TimeoutError) as error:
        raise Retryable(f"{host}:{port} was not reached: {str(error) or f'no answer in {patience:g} s'}") from error
    try:
        writer.write(key.encode())
        return await _received(_Source(reader, patience, most_bytes), on_piece)
    except MemoryError as error:
        raise Retryable("there is no memory for the state") from error
    finally:
        writer.close()


async def _received(source: _Source, on_piece: OnPiece | None) -> PromptState:
    assembly = Assembly()
    while True:
        match await read_frame(source.read):
            case Failure(reason):
                raise Retryable(f"the other runner did not compute the state: {reason}")
            case End(tokens):
                # What is joined may be gigabytes: the generations of this runner go on meanwhile.
                return await asyncio.to_thread(assembly.finished, tokens)
            case Waiting():
                pass
            case piece:
                assembly.take(piece)
                if on_piece is not None:
                    await on_piece(piece)
