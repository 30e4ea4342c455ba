"""A request's body has to keep coming: one that trickles would hold its connection and its memory for ever."""

import asyncio
import time

from litestar.types import HTTPReceiveMessage, Receive, ReceiveMessage

from exo.api.http.body_parts import BodyParts
from exo.errors import Rejected

SECONDS = 60.0
"""That a body may take, however small it is."""
BYTES_PER_SECOND = 16 * 1024
"""Each so many that came give one second more."""


class Paced:
    """ASGI's `receive`, which raises Rejected when the body falls behind, or is of too many parts."""

    __slots__ = ("_began", "_bytes", "_is_whole", "_parts", "_receive", "_seconds")

    def __init__(self, receive: Receive, seconds: float = SECONDS) -> None:
        self._receive = receive
        self._seconds = seconds
        self._began = time.monotonic()
        self._bytes = 0
        self._parts = BodyParts()
        self._is_whole = False

    async def __call__(self) -> HTTPReceiveMessage | ReceiveMessage:
        """The next message. After the body there is only the client's leaving, which may take as long as it likes."""
        if self._is_whole:
            return await self._receive()
        left = self._seconds + self._bytes / BYTES_PER_SECOND - (time.monotonic() - self._began)
        try:
            async with asyncio.timeout(left):
                message = await self._receive()
        except TimeoutError:
            taken = time.monotonic() - self._began
            reason = f"{self._bytes} bytes of the request's body came within {taken:.0f} s, and then no more"
            raise Rejected(reason, code="request_timeout") from None
        body = message.get("body", b"")
        self._bytes += len(body)
        self._parts.add(body)
        self._is_whole = not message.get("more_body", False)
        return message
