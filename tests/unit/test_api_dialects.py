"""Errors in the words of each API."""

import json

import pytest

from exo.api.http.codes import STATUSES
from exo.api.http.dialects import (
    ANTHROPIC,
    OLLAMA,
    OPENAI,
    Dialect,
    anthropic_error,
    dialect_of,
    ollama_error,
    openai_error,
)
from exo.api.http.problem import Problem

PROBLEM = Problem("unsupported_parameter", "this is not supported", "top_z")


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages", ANTHROPIC),
        ("/v1/messages/", ANTHROPIC),
        ("/v1/messages/count_tokens", ANTHROPIC),
        ("/v1/messages/batches/1", ANTHROPIC),
        ("/v1/messagesandmore", OPENAI),
        ("/ollama", OLLAMA),
        ("/ollama/api/chat", OLLAMA),
        ("/api/tags", OLLAMA),
        ("/v1/chat/completions", OPENAI),
        ("/v1/api", OPENAI),
        ("/apiary", OPENAI),
        ("/", OPENAI),
        ("", OPENAI),
    ],
)
def test_a_path_has_the_dialect_of_its_api(path: str, dialect: Dialect) -> None:
    assert dialect_of(path) is dialect


def test_openai_has_every_field() -> None:
    error = json.loads(openai_error(PROBLEM, "r1"))
    assert error == {
        "error": {
            "message": "this is not supported",
            "type": "invalid_request_error",
            "param": "top_z",
            "code": "unsupported_parameter",
        }
    }


def test_anthropic_names_the_parameter_in_the_message_and_the_request_beside_it() -> None:
    assert json.loads(anthropic_error(PROBLEM, "r1")) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "top_z: this is not supported",
            "details": {"error_code": "unsupported_parameter"},
        },
        "request_id": "r1",
    }


def test_ollama_has_a_text() -> None:
    assert json.loads(ollama_error(PROBLEM, "r1")) == {"error": "top_z: this is not supported"}


def test_a_message_that_names_the_parameter_is_left_as_it_is() -> None:
    assert json.loads(ollama_error(Problem("invalid_request", "'model' is missing", "model"))) == {
        "error": "'model' is missing"
    }


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (409, "conflict_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
    ],
)
def test_anthropic_has_a_type_for_each_status(status: int, type_: str) -> None:
    assert json.loads(anthropic_error(Problem("x", "y", status=status)))["error"]["type"] == type_


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, OLLAMA])
def test_every_code_can_be_told_in_one_line(dialect: Dialect) -> None:
    for code in STATUSES:
        told = dialect.envelope(Problem(code, "two\nlines"), "r1")
        assert b"\n" not in told
        assert "two" in json.dumps(json.loads(told))
