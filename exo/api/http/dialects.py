"""How each API that exo speaks writes an error: the envelope that its clients read, by the path that was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic_core import to_json

from exo.api.http.codes import PARAMS
from exo.api.http.problem import Problem


class Envelope(Protocol):
    """Writes an error as the JSON of one API."""

    def __call__(self, problem: Problem, request_id: str = "") -> bytes:
        """The body of a response, or the data of an event in a stream. It has no line break in it."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """What is different from API to API when something goes wrong."""

    envelope: Envelope
    request_id_headers: tuple[str, ...] = ("x-request-id",)
    """Under which a response names its request."""


def openai_error(problem: Problem, request_id: str = "") -> bytes:
    """`{"error": {message, type, param, code}}`."""
    error = {
        "message": problem.message,
        "type": _openai_type(problem.http_status),
        "param": _param(problem),
        "code": problem.code,
    }
    return to_json({"error": error})


def anthropic_error(problem: Problem, request_id: str = "") -> bytes:
    """`{"type": "error", "error": {type, message, details}, "request_id"}`. The message names the parameter."""
    error = {
        "type": _anthropic_type(problem.http_status),
        "message": _naming_param(problem),
        "details": {"error_code": problem.code},
    }
    return to_json({"type": "error", "error": error, "request_id": request_id or None})


def ollama_error(problem: Problem, request_id: str = "") -> bytes:
    """`{"error": "…"}`. The message names the parameter."""
    return to_json({"error": _naming_param(problem)})


OPENAI = Dialect(openai_error)
ANTHROPIC = Dialect(anthropic_error, ("x-request-id", "request-id"))
OLLAMA = Dialect(ollama_error)

_PATHS: Mapping[str, Dialect] = {"/v1/messages": ANTHROPIC, "/ollama": OLLAMA, "/api": OLLAMA}
"""The beginnings of paths that belong to an API. All others are OpenAI's, or the cluster's own, in the same form."""


def dialect_of(path: str) -> Dialect:
    """That of the API to which a path belongs, whether there is an endpoint at it or not."""
    return next((dialect for start, dialect in _PATHS.items() if f"{path}/".startswith(f"{start}/")), OPENAI)


def _openai_type(status: int) -> str:
    match status:
        case 429:
            return "rate_limit_error"
        case 499:
            return "cancelled_error"
        case _:
            return "invalid_request_error" if status < 500 else "server_error"


_ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
"""https://docs.anthropic.com/en/api/errors"""


def _anthropic_type(status: int) -> str:
    return _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def _param(problem: Problem) -> str | None:
    return problem.param or PARAMS.get(problem.code)


def _naming_param(problem: Problem) -> str:
    """The message for an envelope that has no place for the parameter."""
    param = _param(problem)
    return problem.message if param is None or param in problem.message else f"{param}: {problem.message}"
