"""The web server: at an address that is known to be free, and ended by its process, not by signals of its own."""

import contextlib
import errno
import socket
from collections.abc import Generator

import uvicorn

from exo.api.http.connection import Connection
from exo.api.http.front import Front
from exo.errors import Fatal

GRACE = 1.0
"""Seconds at the end that connections have to finish."""
BACKLOG = 2048


class Server(uvicorn.Server):
    """Uvicorn without its signal handlers: those of the process end it, and NATS with it."""

    def __init__(self, front: Front, connection: type[Connection] = Connection) -> None:
        config = uvicorn.Config(
            front,
            http=connection,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(GRACE),
            timeout_keep_alive=60,
            backlog=BACKLOG,
            ws="none",
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """No signals."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """A socket at the address, not listening yet. Raises Fatal, saying what to do, where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns off Nagle's delay, 40 ms a response, only where it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Two processes may bind with SO_REUSEADDR; only one may listen.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Fatal(
                f"port {port} of {host} is taken: stop what listens there, or set EXO_API_PORT to another port"
            ) from error
        raise Fatal(f"cannot listen at {host}:{port} (EXO_API_HOST, EXO_API_PORT): {error.strerror}") from error
    return listener
