"""Several requests in one connection, sent without waiting for answers, of a client that hangs up."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from litestar.types import Receive, Scope, Send

from exo.api.http.front import Front
from exo.api.http.server import Server, bind
from exo.api.metrics.meters import Meters

if TYPE_CHECKING:
    from conftest import Until


class Waiting:
    """An application whose answers never end before their client is gone."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.left: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"nobody reads this", "more_body": True})
        self.left.append(scope["path"])


@pytest.fixture
async def app() -> AsyncIterator[tuple[Waiting, int]]:
    """With the port that it is served at."""
    application, front, listener = Waiting(), Front("nothing", Meters()), bind("127.0.0.1", 0)
    front.app = application
    server = Server(front)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield application, listener.getsockname()[1]
    server.should_exit = True
    await serving


async def test_an_answer_to_head_learns_that_nobody_reads_it_and_the_connection_goes_on(
    app: tuple[Waiting, int], until: "Until"
) -> None:
    waiting, port = app
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(b"HEAD /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number for number in range(2)))
    await until(lambda: waiting.left == ["/0", "/1"], "the end of both")
    async with asyncio.timeout(20):
        heads = [await reader.readuntil(b"\r\n\r\n") for _ in range(2)]
    assert all(head.startswith(b"HTTP/1.1 200") for head in heads)
    writer.close()


async def test_the_request_that_is_answered_learns_that_its_client_is_gone(
    app: tuple[Waiting, int], caplog: pytest.LogCaptureFixture, until: "Until"
) -> None:
    waiting, port = app
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number for number in range(3)))
    async with asyncio.timeout(20):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await until(lambda: waiting.left == ["/0"], "the end of the first")
    assert waiting.begun == ["/0"], "those behind it are not begun"
    assert caplog.text == ""
