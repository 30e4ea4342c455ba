"""What a client may take of memory, time and connections, on the real web server, with shorter deadlines."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from litestar import Litestar, Request, post

from exo.api.http.connection import HEAD_MOST, HEADERS_MOST, REQUEST_MOST, Connection
from exo.api.http.error_responses import respond
from exo.api.http.front import Front
from exo.api.http.server import Server, bind
from exo.api.metrics.meters import Meters
from exo.process import end

GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n"
Answer = tuple[int, dict[str, str], Any]


class Impatient(Connection):
    """With less patience than clients are given."""

    head_seconds = 0.3
    connections_most = 4


class Patient(Connection):
    """As it is, with time enough for any machine."""

    head_seconds = 60.0


@post("/v1/messages")
async def count(request: Request[Any, Any, Any]) -> dict[str, int]:
    return {"bytes": len(await request.body())}


@asynccontextmanager
async def serving(connection: type[Connection], body_seconds: float = 60.0) -> AsyncIterator[int]:
    """The web server with an application that counts a body's bytes; the port."""
    front = Front("nothing", Meters(), body_seconds)
    front.app = Litestar([count], exception_handlers={Exception: respond}, logging_config=None)
    listener = bind("127.0.0.1", 0)
    server = Server(front, connection)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        await end(task)
        listener.close()


async def answer(reader: asyncio.StreamReader) -> Answer:
    """A whole response. Fails where none comes."""
    async with asyncio.timeout(20):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers["content-length"]))
    return int(status.split()[1]), headers, json.loads(body)


async def ask(port: int, *parts: bytes) -> Answer:
    """What comes back for bytes that are sent one after the other, and that the server closes then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        found = await answer(reader)
        if found[1].get("connection") == "close":
            assert await reader.read() == b""
        return found
    finally:
        writer.close()


@pytest.mark.parametrize(
    "parts",
    [
        [GET, *(f"x-{number}: y\r\n".encode() for number in range(HEADERS_MOST)), b"\r\n"],
        [GET, b"x-large: ", b"y" * HEAD_MOST, b"\r\n\r\n"],
        [GET, b"x-endless: ", *[b"y" * HEAD_MOST] * 16],
        [b"GET /", b"y" * HEAD_MOST, b" HTTP/1.1\r\nhost: localhost\r\n\r\n"],
    ],
    ids=["many headers", "a large header", "an endless header", "a long path"],
)
async def test_a_head_that_is_too_large_is_refused(parts: list[bytes]) -> None:
    async with serving(Patient) as port:
        status, headers, body = await ask(port, *parts)
        assert (status, body["error"]["code"]) == (431, "headers_too_large")
        assert headers["x-request-id"]


async def test_as_many_headers_as_are_allowed_are_taken() -> None:
    fields = b"".join(f"x-{number}: y\r\n".encode() for number in range(HEADERS_MOST - 3))
    async with serving(Patient) as port:
        status, _, body = await ask(port, POST, fields, b"content-length: 2\r\n\r\n", b"hi")
    assert (status, body) == (201, {"bytes": 2})


async def test_a_head_that_does_not_come_is_given_up() -> None:
    async with serving(Impatient) as port:
        status, _, body = await ask(port, POST[:-2])
    assert (status, body["error"]["details"]["error_code"]) == (408, "request_timeout")


@pytest.mark.parametrize("sent", [b"", b"\r\n"], ids=["nothing", "an empty line"])
async def test_who_says_nothing_is_hung_up_on(sent: bytes) -> None:
    async with serving(Impatient) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_body_that_trickles_is_given_up_in_the_words_of_the_api_that_was_called() -> None:
    async with serving(Patient, body_seconds=0.2) as port:
        status, _, body = await ask(port, POST, b"content-length: 1000\r\n\r\n", b"a few bytes")
    assert (status, body["error"]["details"]["error_code"]) == (408, "request_timeout")
    assert "11 bytes" in body["error"]["message"]


async def test_a_body_in_many_pieces_is_taken_whole() -> None:
    chunks = [b"5\r\nabcde\r\n"] * 1000
    async with serving(Patient) as port:
        status, _, body = await ask(port, POST, b"transfer-encoding: chunked\r\n\r\n", *chunks, b"0\r\n\r\n")
    assert (status, body) == (201, {"bytes": 5000})


async def test_what_follows_an_endless_body_ends_the_connection() -> None:
    trailer = [b"x-endless: ", *[b"y" * 2**20] * (REQUEST_MOST // 2**20 + 1)]
    async with serving(Patient) as port:
        status, _, body = await ask(port, POST, b"transfer-encoding: chunked\r\n\r\n0\r\n", *trailer)
    assert (status, body["error"]["details"]["error_code"]) == (413, "request_too_large")


async def test_what_is_no_http_is_refused_in_the_envelope() -> None:
    async with serving(Patient) as port:
        status, _, body = await ask(port, b"hello?\r\n\r\n")
    assert (status, body["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "head",
    [b"POST /v1/messages HTTP/1.1\r\n", POST + b"host: other\r\n", POST.replace(b"1.1", b"1.0") + b"host: other\r\n"],
    ids=["none", "two", "two of HTTP/1.0"],
)
async def test_a_request_says_once_whom_it_is_for(head: bytes) -> None:
    async with serving(Patient) as port:
        status, _, body = await ask(port, head, b"content-length: 2\r\n\r\nhi")
    assert (status, "'Host'" in body["error"]["message"]) == (400, True)


async def test_clients_of_http_1_0_need_not_say_whom_a_request_is_for() -> None:
    async with serving(Patient) as port:
        status, _, body = await ask(port, b"POST /v1/messages HTTP/1.0\r\ncontent-length: 2\r\n\r\nhi")
    assert (status, body) == (201, {"bytes": 2})


async def test_one_connection_too_many_is_told_to_come_again() -> None:
    async with serving(Impatient) as port:
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(Impatient.connections_most)]
        status, headers, body = await ask(port)
        assert (status, body["error"]["code"]) == (503, "too_many_connections")
        assert int(headers["retry-after"]) > 0
        for _, writer in others:
            writer.close()


async def test_a_connection_is_used_again_and_again_without_a_deadline_from_before() -> None:
    async with serving(Patient) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for size in (1, 70_000, 2):
            writer.write(POST + f"content-length: {size}\r\n\r\n".encode() + b"x" * size)
            assert (await answer(reader))[2] == {"bytes": size}
        writer.close()
