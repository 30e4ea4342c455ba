"""The object `response`, at any time of its life."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import from_json

from exo.api.http.errors import GenerationFailed
from exo.api.openai.responses.ids import response_id
from exo.api.openai.responses.output import LastStatus, Output
from exo.api.openai.responses.records import ResponseRecord
from exo.api.openai.responses.requests import ResponseRequest
from exo.api.openai.responses.shapes import Asked, OutputItem, ResponseBody, ResponseError, ResponseUsage, Status
from exo.domain.messages.chunks import EndPiece
from exo.domain.sampling import Usage

_INCOMPLETE: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is not complete, by the reason for which it ended."""

_TOOL_FIELDS = {"type", "name", "description", "parameters", "strict"}


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


def response_of(record: ResponseRecord, progress: Progress) -> ResponseBody:
    """The whole object. What is the default is told too."""
    request = record.request
    return {
        "id": response_id(record.task_id),
        "object": "response",
        "created_at": record.created,
        "status": progress.status,
        "error": progress.error,
        "incomplete_details": {"reason": progress.incomplete} if progress.incomplete else None,
        "model": record.model_id,
        "output": progress.output,
        "usage": usage_of(progress.usage) if progress.usage else None,
        **_asked(request),
    }


def usage_of(usage: Usage) -> ResponseUsage:
    """Tokens, with the names that responses have for them."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _asked(request: ResponseRequest) -> Asked:
    reasoning = request.reasoning
    return {
        "background": bool(request.background),
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "store": request.is_stored,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {"format": _format_of(request)},
        "tool_choice": _chosen(request),
        "tools": [tool.model_dump(include=_TOOL_FIELDS) for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": "disabled",
        "user": request.user,
    }


def _chosen(request: ResponseRequest) -> str | dict[str, object]:
    chosen = request.tool_choice or "auto"
    return chosen if isinstance(chosen, str) else chosen.model_dump()


def _format_of(request: ResponseRequest) -> dict[str, object]:
    asked = request.text.format if request.text else None
    if asked is None:
        return {"type": "text"}
    fields: dict[str, object] = asked.model_dump(exclude_none=True, exclude={"schema_"})
    if asked.schema_ is not None:
        schema: JsonValue = from_json(asked.schema_)
        fields["schema"] = schema
    return fields


def _error_code(status: int) -> str:
    """OpenAI's few codes; exo's own is the error's type."""
    if status == 429:
        return "rate_limit_exceeded"
    return "server_error" if status >= 500 else "invalid_prompt"
