"""The envelope, and the status of each error."""

import json
import re
from pathlib import Path

import pytest
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from pydantic import BaseModel, ValidationError

import exo
from exo.api.app import routes
from exo.api.generations.generation import Generation
from exo.api.http.codes import PARAMS, RETRY_AFTER, STATUSES
from exo.api.http.dialects import openai_error
from exo.api.http.errors import CommandRefused, GenerationFailed, failure, problem_of
from exo.api.openai.requests import ChatCompletionRequest
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece
from exo.errors import Rejected, Retryable


@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (Rejected("no"), 400, "invalid_request", None),
        (Rejected("no", code="model_not_found"), 404, "model_not_found", "model"),
        (Rejected("no", code="queue_full"), 429, "queue_full", None),
        (Rejected("no", code="ambiguous_model", param="model"), 400, "ambiguous_model", "model"),
        (Retryable("not now"), 503, "unavailable", None),
        (GenerationFailed("context_length_exceeded", "too long"), 400, "context_length_exceeded", "messages"),
        (CommandRefused("more than it has", code="context_too_large"), 400, "context_too_large", "context"),
        (GenerationFailed("runner_failed", "died"), 502, "runner_failed", None),
        (GenerationFailed("model_failed", "broken"), 503, "model_failed", "model"),
        (GenerationFailed("queue_timeout", "waited"), 504, "queue_timeout", None),
        (GenerationFailed("cancelled", "gone"), 499, "cancelled", None),
        (GenerationFailed("", "no code"), 500, "internal_error", None),
        (GenerationFailed("a_new_code", "unknown here"), 500, "a_new_code", None),
        (NotFoundException(), 404, "not_found", None),
        (MethodNotAllowedException(), 405, "method_not_allowed", None),
        (HTTPException(status_code=413), 413, "request_too_large", None),
        (HTTPException(status_code=415), 415, "unsupported_media_type", None),
    ],
)
def test_each_error_has_its_status(error: Exception, status: int, code: str, param: str | None) -> None:
    problem = problem_of(error)
    assert problem is not None
    body = json.loads(openai_error(problem))["error"]
    assert (problem.http_status, body["code"], body["param"]) == (status, code, param)
    assert set(body) == {"message", "type", "param", "code"}
    assert body["message"]


@pytest.mark.parametrize("error", [ValueError("x"), HTTPException(status_code=500), KeyError("y")])
def test_what_nobody_foresaw_is_no_problem_of_the_client(error: Exception) -> None:
    assert problem_of(error) is None


def test_a_full_queue_says_when_to_come_again() -> None:
    problem = problem_of(Rejected("full", code="queue_full"))
    assert problem is not None
    assert int(problem.headers["retry-after"]) > 0
    known = problem_of(Rejected("full", code="queue_full", retry_after=17))
    assert known is not None
    assert known.headers["retry-after"] == "17"


def test_a_generation_that_was_refused_says_when_to_come_again() -> None:
    generation = Generation(TaskId("t1"), ModelId("m"), 0.0, lambda: "waiting for m")
    generation.end("queue_full", "full", 17)
    (end,) = generation.taken()
    assert isinstance(end, EndPiece)
    failed = failure(end)
    assert failed is not None
    problem = problem_of(failed)
    assert problem is not None
    assert (problem.http_status, problem.headers) == (429, {"retry-after": "17"})


def test_a_validation_error_names_the_place() -> None:
    class Part(BaseModel):
        number: int

    class Body(BaseModel):
        parts: list[Part]

    with pytest.raises(ValidationError) as caught:
        Body.model_validate({"parts": [{"number": 1}, {}]})
    problem = problem_of(caught.value)
    assert problem is not None
    assert (problem.http_status, problem.param) == (400, "parts[1].number")


def test_every_code_that_a_request_can_end_with_has_a_status() -> None:
    root = Path(exo.__file__).parent
    files = [*(root / "domain" / "decide").glob("*.py"), *(root / "runner").rglob("*.py"), root / "domain/dispatch.py"]
    found = {code for file in files for code in re.findall(r'code="([a-z_]+)"', file.read_text())}
    assert found - set(STATUSES) == set()
    assert set(RETRY_AFTER) | set(PARAMS) <= set(STATUSES)


def test_the_documentation_lists_every_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    assert [code for code in STATUSES if f"`{code}`" not in text] == []


def test_the_documentation_lists_every_endpoint() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for handler in routes():
        for path in handler.paths:
            shown = re.sub(r"\{(?:\w+_)?(\w+):\w+\}", r"{\1}", path)
            for method in handler.http_methods:
                is_listed = f"`{method} {shown}`" in text or (shown.startswith("/log/") and f"`{shown}`" in text)
                assert is_listed, f"{method} {shown}"


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"logit_bias": {"abc": 100}}, "logit_bias", "logit_bias: the key 'abc': Input should be a valid integer"),
        ({"logit_bias": {"7": 1000}}, "logit_bias.7", "logit_bias.7: Input should be less than or equal to 100"),
        ({"stop": list("abcde")}, "stop", "stop: there may be 4 at most"),
        ({"tool_choice": "some"}, "tool_choice", "tool_choice: Input should be 'none', 'auto' or 'required'"),
    ],
)
def test_a_wrong_field_is_named_as_the_client_wrote_it(fields: dict[str, object], param: str, message: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    with pytest.raises(ValidationError) as refused:
        ChatCompletionRequest.model_validate_json(json.dumps(body))
    problem = problem_of(refused.value)
    assert problem is not None
    assert (problem.code, problem.param) == ("invalid_request", param)
    assert problem.message.startswith(message)
