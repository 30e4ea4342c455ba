"""What uvicorn talks to: names each request, and answers from the start, even while NATS is not there yet."""

import asyncio

from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from pydantic_core import to_json

from exo.api.errors import Problem
from exo.api.request_ids import HEADER, name_request


class Front:
    """The application, once there is one."""

    def __init__(self, waiting_for: str) -> None:
        self.app: ASGIApp | None = None
        self._waiting_for = waiting_for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI has it."""
        request_id = name_request(scope)
        is_answered = False

        async def named(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                message["headers"] = [*message.get("headers", ()), (HEADER.encode(), request_id)]
            await send(message)

        if self.app is None:
            if scope["type"] == "http":
                await self._not_yet(scope["path"])(scope, receive, named)
            return
        try:
            await self.app(scope, receive, named)
        except asyncio.CancelledError:
            # The web server is ending and gives up those that wait still; a stream that has begun just breaks off.
            if not is_answered:
                await _respond(Problem("shutting_down", "this API process is shutting down"))(scope, receive, named)

    def _not_yet(self, path: str) -> ASGIApp:
        if path == "/health":
            return ASGIResponse(body=b'{"status":"ok"}', media_type="application/json")
        reason = f"waiting for {self._waiting_for}"
        problem = Problem("unavailable", f"this API process is {reason}")
        return _respond(problem, to_json({"ready": False, "reasons": [reason]}) if path == "/ready" else None)


def _respond(problem: Problem, body: bytes | None = None) -> ASGIApp:
    return ASGIResponse(
        body=body or problem.envelope(),
        status_code=problem.http_status,
        headers=problem.headers,
        media_type="application/json",
    )
