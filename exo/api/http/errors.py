"""What goes wrong, as a client sees it: the one place that maps exceptions to problems."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from litestar.exceptions import HTTPException
from pydantic import ValidationError

from exo.api.http.body_errors import body_problem
from exo.api.http.codes import STATUSES
from exo.api.http.problem import Problem
from exo.domain.messages.chunks import EndPiece
from exo.errors import ExoError, Rejected, Retryable

_HTTP_CODES: Mapping[int, str] = {
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
    500: "internal_error",
}


class GenerationFailed(ExoError):  # noqa: N818  (as the event's finish reason)
    """A generation ended without an answer."""

    def __init__(self, code: str, reason: str, param: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.code = code or "internal_error"
        self.reason = reason
        self.param = param
        self.retry_after = retry_after

    @property
    def problem(self) -> Problem:
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
        case ValidationError():
            return body_problem(error)
        case HTTPException() if error.status_code < 500:
            return _http_problem(error)
        case _:
            return None


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
