"""What uvicorn talks to: names each request, and answers from the start, even while NATS is not there yet."""

import asyncio
import logging

from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from pydantic_core import to_json

from exo.api.bodies.openapi import JSON
from exo.api.http import body_pace
from exo.api.http.dialects import dialect_of
from exo.api.http.head import allowing_head, as_get, without_body
from exo.api.http.problem import Problem
from exo.api.http.request_ids import name_request
from exo.api.metrics.meters import Meters
from exo.log_setup import current_request

logger = logging.getLogger(__name__)


class Front:
    """The application, once there is one."""

    def __init__(self, waiting_for: str, meters: Meters, body_seconds: float = body_pace.SECONDS) -> None:
        """`waiting_for`: why there is no application yet. `body_seconds`: see `exo.api.http.body_pace`."""
        self.app: ASGIApp | None = None
        self._body_seconds = body_seconds
        self._waiting_for = waiting_for
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI has it."""
        method, scope = str(scope.get("method")), as_get(scope)
        request_id, path = name_request(scope), scope["path"]
        names = [(header.encode(), request_id) for header in dialect_of(path).request_id_headers]
        current_request.set(request_id.decode())
        is_answered = False

        async def named(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                logger.debug("%s %s: %d", method, path, message["status"])
                self._meters.answered(method, scope.get("path_template", ""), message["status"])
                message["headers"] = [*allowing_head(message.get("headers", ())), *names]
            await send(message)

        answer = without_body(named) if method == "HEAD" else named
        if self.app is None:
            if scope["type"] == "http":
                await self._not_yet(path, request_id)(scope, receive, answer)
            return
        try:
            await self.app(scope, body_pace.Paced(receive, self._body_seconds), answer)
        except asyncio.CancelledError:
            # The web server is ending and gives up those that wait still; a stream that has begun just breaks off.
            if not is_answered:
                problem = Problem("shutting_down", "this API process is shutting down")
                await _respond(problem, path, request_id)(scope, receive, answer)

    def _not_yet(self, path: str, request_id: bytes) -> ASGIApp:
        if path == "/health":
            return ASGIResponse(body=b'{"status":"ok"}', media_type=JSON)
        reason = f"waiting for {self._waiting_for}"
        if path == "/ready":
            body = to_json({"ready": False, "reasons": [reason]})
            return ASGIResponse(body=body, status_code=503, media_type=JSON)
        return _respond(Problem("unavailable", f"this API process is {reason}"), path, request_id)


def _respond(problem: Problem, path: str, request_id: bytes) -> ASGIApp:
    return ASGIResponse(
        body=dialect_of(path).envelope(problem, request_id.decode()),
        status_code=problem.http_status,
        headers=problem.headers,
        media_type=JSON,
    )
