"""What goes wrong, as a client sees it: one table of codes, and one place that maps exceptions to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from litestar.exceptions import HTTPException
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from exo.domain.limits import FAILURE_REMEMBERED
from exo.domain.messages.chunks import EndPiece
from exo.errors import ExoError, Rejected, Retryable, without_prefix

STATUSES: Mapping[str, int] = {
    "invalid_request": 400,
    "invalid_json": 400,
    "invalid_id": 400,
    "invalid_script": 400,
    "empty_prompt": 400,
    "no_chat_template": 400,
    "tools_not_supported": 400,
    "embeddings_not_supported": 400,
    "unsupported_parameter": 400,
    "context_length_exceeded": 400,
    "context_too_large": 400,
    "invalid_response_format": 400,
    "ambiguous_instance": 400,
    "ambiguous_model": 400,
    "ambiguous_node": 400,
    "invalid_api_key": 401,
    "insufficient_scope": 403,
    "foreign_page": 403,
    "foreign_host": 403,
    "not_found": 404,
    "model_not_found": 404,
    "model_damaged": 503,
    "instance_not_found": 404,
    "node_not_found": 404,
    "generation_not_found": 404,
    "generation_expired": 404,
    "event_not_found": 404,
    "response_not_found": 404,
    "previous_response_not_found": 400,
    "response_not_completed": 400,
    "command_not_found": 404,
    "key_not_found": 404,
    "download_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "duplicate_key": 409,
    "already_revoked": 409,
    "duplicate_task": 409,
    "already_placed": 409,
    "already_on_disk": 409,
    "already_requested": 409,
    "already_cancelling": 409,
    "already_known": 409,
    "model_in_use": 409,
    "not_removed": 409,
    "not_enough_nodes": 409,
    "vllm_one_node_only": 400,
    "tensor_shape": 400,
    "too_few_layers": 400,
    "no_ring": 409,
    "no_rdma": 409,
    "request_too_large": 413,
    "unsupported_media_type": 415,
    "queue_full": 429,
    "headers_too_large": 431,
    "cancelled": 499,
    "internal_error": 500,
    "engine_error": 500,
    "runner_failed": 502,
    "node_lost": 502,
    "output_lost": 502,
    "request_unreadable": 502,
    "model_failed": 503,
    "model_unavailable": 503,
    "hub_refused": 502,
    "hub_unreachable": 503,
    "insufficient_memory": 503,
    "no_engine": 503,
    "insufficient_storage": 503,
    "instance_deleted": 503,
    "no_nodes": 503,
    "no_master": 503,
    "too_many_connections": 503,
    "unavailable": 503,
    "shutting_down": 503,
    "queue_timeout": 504,
    "request_expired": 504,
    "timeout": 504,
}
"""HTTP status of each code. 499 is nginx's: the client went away, or somebody cancelled what it had asked for."""

RETRY_AFTER: Mapping[str, int] = {
    "queue_full": 5,
    "model_failed": int(FAILURE_REMEMBERED),
    "instance_deleted": 2,
    "no_nodes": 2,
    "no_master": 2,
    "too_many_connections": 2,
    "hub_unreachable": 30,
    "unavailable": 2,
    "shutting_down": 2,
}
"""Seconds after which asking again may help."""

HEADERS: Mapping[str, tuple[str, str]] = {
    "invalid_api_key": ("www-authenticate", 'Bearer realm="exo"'),
    "insufficient_scope": ("www-authenticate", 'Bearer realm="exo", error="insufficient_scope"'),
    "unsupported_media_type": ("accept-encoding", "identity"),
}
"""What a response says in a header: that a key is needed, or another one (RFC 6750); how a body has to be encoded (RFC
9110, 15.5.16)."""

PARAMS: Mapping[str, str] = {
    "model_not_found": "model",
    "model_failed": "model",
    "insufficient_memory": "model",
    "no_engine": "model",
    "node_not_found": "node_ids",
    "ambiguous_node": "node_ids",
    "not_enough_nodes": "min_nodes",
    "tensor_shape": "sharding",
    "too_few_layers": "sharding",
    "vllm_one_node_only": "engine",
    "no_ring": "min_nodes",
    "no_rdma": "backend",
    "context_length_exceeded": "messages",
    "context_too_large": "context",
    "empty_prompt": "messages",
    "invalid_script": "messages",
    "tools_not_supported": "tools",
}
"""The parameter that a code is about, where the error itself does not say."""

_HTTP_CODES: Mapping[int, str] = {
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
    500: "internal_error",
}

ERRORS_MOST = 1000
"""Errors of one body that pydantic is asked to tell, which it does all at once, for three microseconds each."""


class GenerationFailed(ExoError):  # noqa: N818  (as the event's finish reason)
    """A generation ended without an answer."""

    def __init__(self, code: str, reason: str, param: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.code = code or "internal_error"
        self.reason = reason
        self.param = param
        self.retry_after = retry_after

    @property
    def problem(self) -> "Problem":
        """What the client is told."""
        return Problem(self.code, self.reason, self.param, retry_after=self.retry_after)


class CommandRefused(Rejected):
    """A command that was waited for, and that the cluster as it is now does not allow: 409 rather than 5xx."""


def failure(end: EndPiece) -> GenerationFailed | None:
    """What went wrong with a generation that is over; None where it has its answer."""
    match end.finish_reason:
        case "error":
            return GenerationFailed(end.code, end.error or "the generation failed", end.param, end.retry_after)
        case "cancelled":
            return GenerationFailed(end.code or "cancelled", end.error or "the generation was cancelled")
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, before it is JSON in one dialect or another."""

    code: str
    message: str
    param: str | None = None
    status: int | None = None
    """None: by the code."""
    retry_after: int | None = None
    """Seconds; None: by the code."""
    allow: str = ""
    """The methods that there are, where it is another one that was asked for."""

    @property
    def http_status(self) -> int:
        """The response's status."""
        return self.status or STATUSES.get(self.code, 500)

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After`, where asking again may help; `Allow`, where another method would; what the code brings."""
        found = dict([HEADERS[self.code]] if self.code in HEADERS else [])
        seconds = self.retry_after or RETRY_AFTER.get(self.code)
        if seconds is not None:
            found["retry-after"] = str(seconds)
        if self.allow:
            found["allow"] = self.allow
        return found


def problem_of(error: Exception) -> Problem | None:
    """What an exception means to the client; None where nobody foresaw it."""
    match error:
        case CommandRefused() if STATUSES.get(error.code, 500) >= 500:
            return Problem(error.code, error.reason, error.param, HTTPStatus.CONFLICT)
        case Rejected():
            return Problem(error.code, error.reason, error.param, retry_after=error.retry_after)
        case GenerationFailed():
            return error.problem
        case Retryable():
            return Problem("unavailable", str(error))
        case ValidationError() if error.error_count() > ERRORS_MOST:
            reason = f"the body has {error.error_count()} errors: docs/api.md has the parameters of each endpoint"
            return Problem("invalid_request", reason)
        case ValidationError():
            return validation_problem(error.errors(include_url=False))
        case HTTPException() if error.status_code < 500:
            return _http_problem(error)
        case _:
            return None


def validation_problem(errors: Sequence[ErrorDetails]) -> Problem:
    """The first of a body's errors, with the path of the parameter: `messages[0].content`."""
    first = errors[0]
    param = _path(first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return Problem("unsupported_parameter", f"'{param}' is not a parameter of this endpoint", param)
        case "not_supported":
            return Problem("unsupported_parameter", f"{param}: {first['msg']}", param)
        case "json_invalid" if not param:
            return Problem("invalid_json", f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
        case "missing":
            return Problem("invalid_request", f"'{param}' is missing", param)
        case "too_long" if param:
            return Problem("invalid_request", f"{param}: there may be {_count(first)} at most", param)
        case _:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            where = f"the key '{first['loc'][-2]}': " if first["loc"][-1:] == ("[key]",) else ""
            said = f"{param or 'the body'}: {where}{without_prefix(first['msg'])}{more}"
            return Problem("invalid_request", said, param or None)


def _http_problem(error: HTTPException) -> Problem:
    code = _HTTP_CODES.get(error.status_code, "invalid_request")
    details: Any = error.extra
    match details:
        case [{"key": str(name), "message": str(message)}, *_]:  # Litestar's, of a parameter
            return Problem(code, f"{name}: {message}", name, error.status_code)
        case _:
            reason = error.detail or HTTPStatus(error.status_code).phrase
            allow = (error.headers or {}).get("allow", "")
            return Problem(code, reason, status=error.status_code, allow=allow)


def _count(error: ErrorDetails) -> int:
    return error.get("ctx", {})["max_length"]


def _path(location: tuple[int | str, ...]) -> str:
    """Of the parameter, without what pydantic adds: that it is about a mapping's key, or which type of several, which
    is a tag of a union, `<text>`, or a type, `list[…]`."""
    path = ""
    for part in location[:-2] if location[-1:] == ("[key]",) else location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif "[" in part:
            break
        elif not part.startswith("<"):
            path += f".{part}"
    return path.removeprefix(".")
