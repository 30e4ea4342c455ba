"""How far a response is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exo.api.http.errors import GenerationFailed
from exo.api.openai.responses.output import LastStatus, Output
from exo.api.openai.responses.shapes import OutputItem, ResponseError, Status
from exo.domain.messages.chunks import EndPiece
from exo.domain.sampling import Usage

_INCOMPLETE: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is not complete, by the reason for which it ended."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a response is."""

    status: Status
    output: Sequence[OutputItem] = ()
    usage: Usage | None = None
    error: ResponseError | None = None
    incomplete: str | None = None


def status_of_items(end: EndPiece) -> LastStatus:
    """Of the text that an answer ends with."""
    return "incomplete" if end.finish_reason in _INCOMPLETE else "completed"


def ended(end: EndPiece, output: Output) -> Progress:
    """A response with an answer."""
    output.close(status_of_items(end))
    incomplete = _INCOMPLETE.get(end.finish_reason)
    return Progress("incomplete" if incomplete else "completed", output.items, end.usage, incomplete=incomplete)


def unanswered(failure: GenerationFailed, output: Output) -> Progress:
    """A response without one, and what there is of it."""
    output.close("incomplete")
    if failure.code == "cancelled":
        return Progress("cancelled", output.items)
    problem = failure.problem
    error: ResponseError = {"code": _error_code(problem.http_status), "message": problem.message, "type": problem.code}
    return Progress("failed", output.items, error=error)


def _error_code(status: int) -> str:
    """OpenAI's few codes; exo's own is the error's type."""
    if status == 429:
        return "rate_limit_exceeded"
    return "server_error" if status >= 500 else "invalid_prompt"
