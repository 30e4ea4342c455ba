"""Exceptions as responses, in the dialect of the API that was called."""

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from exo.api.bodies.query_values import query_problem
from exo.api.http.dialects import dialect_of
from exo.api.http.errors import problem_of
from exo.api.http.json_response import written_json
from exo.api.http.problem import Problem
from exo.api.http.request_ids import HEADER

logger = logging.getLogger(__name__)

_CLIENT_GONE = "client disconnected prematurely"
"""What Litestar says, as a fault of the server, of a body that was cut short."""


def respond(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The response for an exception. One that nobody foresaw is logged with its traceback."""
    request_id = request.headers.get(HEADER, "")
    problem = query_problem(request, error) or problem_of(error)
    if problem is None and isinstance(error, HTTPException) and error.detail == _CLIENT_GONE:
        problem = Problem("cancelled", "the client went away before its request was whole")
    if problem is None:
        logger.error("request %s: %s %s failed", request_id, request.method, request.url.path, exc_info=error)
        problem = Problem("internal_error", f"exo failed on this request; its log has the reason under {request_id}")
    body = dialect_of(request.url.path).envelope(problem, request_id)
    return written_json(body, status_code=problem.http_status, headers=problem.headers)
