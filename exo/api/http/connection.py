"""One connection of a client: what its requests may take of memory and time before the application sees them.

httptools takes heads of any size for any time, and uvicorn leaves both to a proxy, which need not be there.
"""

import asyncio
from typing import Any, ClassVar

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from exo.api.bodies.openapi import JSON
from exo.api.http.dialects import dialect_of
from exo.api.http.problem import Problem
from exo.bus.client import new_id

HEAD_MOST = 64 * 1024
"""Bytes of a request's line and headers."""
HEADERS_MOST = 100
REQUEST_MOST = 80 * 2**20
"""Bytes of a whole request as it travels: a body that is allowed, with whatever chunks put around it."""
LINGER = 2.0
"""Seconds in which a client that was refused may finish what it sends, so that it reads why."""

_TOO_LARGE = Problem(
    "headers_too_large", f"at most {HEADERS_MOST} headers and {HEAD_MOST // 1024} KB of them are taken"
)


class _HeadError(HttpParserError):
    """Ends the parser's work."""


class Connection(HttpToolsProtocol):
    """Uvicorn's, with limits. What breaks one is answered in the envelope of the API that was called, and ends it."""

    head_seconds: ClassVar[float] = 20.0
    """From a connection's begin, or the first byte after an answer, to the end of a request's headers."""
    connections_most: ClassVar[int] = 3840
    """Open at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self._received = 0
        """Bytes of this request, but for those of the read that it began in."""
        self._head_size = 0
        self._in_head = False
        self._problem: Problem | None = None
        """Why it was refused."""
        self._clock: asyncio.TimerHandle | None = None
        self._open: list[RequestResponseCycle] = []
        """Requests without a whole answer: the one that is answered, and those that wait behind it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  as uvicorn has it
        """A client is there."""
        super().connection_made(transport)
        if len(self.connections) > self.connections_most:
            self._refuse(Problem("too_many_connections", f"{self.connections_most} connections are open already"))
        else:
            self._set_clock(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone. All its requests are told; uvicorn tells the last one only, and the one before would write on."""
        self._stop_clock()
        super().connection_lost(exc)
        for cycle in self._open:
            cycle.disconnected = True
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Some bytes, which may hold a part of a request, one, or several."""
        if self._problem is not None:
            return
        if self._clock is None and self._is_idle:
            self._set_clock(self.head_seconds)
        self._received += len(data)
        super().data_received(data)
        if self._received > (HEAD_MOST if self._in_head else REQUEST_MOST):
            self._refuse(_TOO_LARGE if self._in_head else Problem("request_too_large", "the request is too large"))

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._received = self._head_size = 0
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Raises where they are too many, or too large, in all."""
        self._head_size += len(name) + len(value)
        if self._head_size + len(self.url) > HEAD_MOST or len(self.headers) >= HEADERS_MOST:
            self._refuse(_TOO_LARGE)
            raise _HeadError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request's head is whole. Raises where it does not say once whom it is for (RFC 9112, 3.2)."""
        self._in_head = False
        self._stop_clock()
        self._check_host()
        super().on_headers_complete()
        self._open = [*(cycle for cycle in self._open if not cycle.response_complete), self.cycle]

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._stop_clock()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser did not take."""
        self._refuse(Problem("invalid_request", "this is no request of HTTP/1.1"))

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete

    def _check_host(self) -> None:
        hosts = sum(name == b"host" for name, _ in self.headers)
        may_lack = self.parser is not None and self.parser.get_http_version() == "1.0"
        if hosts > 1 or (hosts == 0 and not may_lack):
            self._refuse(Problem("invalid_request", f"a request has one header 'Host', and this has {hosts or 'none'}"))
            raise _HeadError

    def _set_clock(self, seconds: float) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(seconds, self._overdue)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _overdue(self) -> None:
        if self._in_head and self._problem is None:
            reason = f"the request's headers did not come within {self.head_seconds:g} s"
            self._refuse(Problem("request_timeout", reason))
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Say why, unless an answer has begun, and end the connection."""
        if self._problem is not None or self.transport.is_closing():
            return
        self._problem = problem
        if self._is_idle or not self.cycle.response_started:
            self.transport.write(_response(problem, self.url.partition(b"?")[0].decode("latin-1")))
            self.transport.write_eof()
            self._set_clock(LINGER)
        else:
            self.transport.close()


def _response(problem: Problem, path: str) -> bytes:
    dialect, request_id = dialect_of(path), new_id()
    body = dialect.envelope(problem, request_id)
    headers = {
        "content-type": JSON,
        "content-length": str(len(body)),
        "connection": "close",
        **dict.fromkeys(dialect.request_id_headers, request_id),
        **problem.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[problem.http_status] + lines.encode() + b"\r\n" + body
