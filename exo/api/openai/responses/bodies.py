"""The object `response`, at any time of its life."""

from pydantic import JsonValue
from pydantic_core import from_json

from exo.api.openai.responses.ids import response_id
from exo.api.openai.responses.progress import Progress
from exo.api.openai.responses.records import ResponseRecord
from exo.api.openai.responses.requests import ResponseRequest
from exo.api.openai.responses.shapes import Asked, ResponseBody, ResponseUsage
from exo.domain.sampling import Usage

_TOOL_FIELDS = {"type", "name", "description", "parameters", "strict"}


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
