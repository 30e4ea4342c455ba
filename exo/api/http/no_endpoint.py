"""What a request gets for which there is no endpoint. Without a key, where one is needed, it is not even told so."""

from collections.abc import Callable
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, NotFoundException

from exo.api.http.access import Connection
from exo.api.http.asked_path import asked_path
from exo.api.http.error_responses import respond
from exo.errors import ExoError, Rejected

_WHERE = "GET /schema/openapi.json lists the endpoints, and docs/api.md explains them"

Handler = Callable[[Request[Any, Any, Any], HTTPException], Response[bytes]]


def answers_without_endpoint(check: Callable[[Connection], None]) -> Handler:
    """The handler of what Litestar raises for a path, or a method, that it does not know: before there is an endpoint
    whose guards could ask for a key. `check` raises an ExoError for who may not know what there is."""

    def answer(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
        try:
            check(request)
        except ExoError as refusal:
            return respond(request, refusal)
        if isinstance(error, NotFoundException):
            reason = f"there is nothing at {request.method} {asked_path(request)}: {_WHERE}"
            return respond(request, Rejected(reason, code="not_found"))
        return respond(request, error)

    return answer
