"""Whatever goes wrong before an endpoint sees the request is told in the words of the API that was called."""

import gzip
from pathlib import Path
from typing import Literal

import httpx
import pytest
from pydantic import BaseModel, ConfigDict

from tests.stack import Stack, wait_until


class OpenAIError(BaseModel):
    """Nothing may be missing, and nothing may be there besides; so with the others."""

    model_config = ConfigDict(extra="forbid")

    class Error(BaseModel):
        model_config = ConfigDict(extra="forbid")

        message: str
        type: str
        param: str | None
        code: str

    error: Error


class AnthropicError(BaseModel):
    model_config = ConfigDict(extra="forbid")

    class Error(BaseModel):
        model_config = ConfigDict(extra="forbid")

        type: str
        message: str
        details: dict[str, str]

    type: Literal["error"]
    error: Error
    request_id: str


class OllamaError(BaseModel):
    model_config = ConfigDict(extra="forbid")

    error: str


UNKNOWN: dict[str, type[BaseModel]] = {
    "/v1/nothing": OpenAIError,
    "/v1/messages/nothing": AnthropicError,
    "/ollama/api/nothing": OllamaError,
}


@pytest.mark.parametrize("path", UNKNOWN)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_a_404_of_its_api(client: httpx.Client, method: str, path: str) -> None:
    response = client.request(method, path)
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/json"
    UNKNOWN[path].model_validate(response.json())


def test_an_unknown_page_beside_the_schema_is_one_too(client: httpx.Client) -> None:
    response = client.get("/schema/nothing")
    assert response.status_code == 404
    OpenAIError.model_validate(response.json())


def test_a_wrong_method_is_a_405(client: httpx.Client) -> None:
    response = client.get("/v1/chat/completions")
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == {"POST", "OPTIONS"}
    OpenAIError.model_validate(response.json())


def test_head_is_told_of_where_there_is_get(client: httpx.Client) -> None:
    response = client.put("/v1/responses/resp_1")
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE", "OPTIONS"}


ENVELOPES: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": OpenAIError,
    "/v1/messages": AnthropicError,
    "/ollama/api/chat": OllamaError,
}


@pytest.mark.parametrize("path", ENVELOPES)
@pytest.mark.parametrize("coding", ["gzip", "identity, br", "GZIP"])
def test_a_body_that_is_encoded_is_a_415_that_names_the_header(client: httpx.Client, path: str, coding: str) -> None:
    body = gzip.compress(b'{"model": "scripted"}')
    response = client.post(path, content=body, headers={"content-encoding": coding})
    assert (response.status_code, response.headers["accept-encoding"]) == (415, "identity")
    ENVELOPES[path].model_validate(response.json())
    assert f"content-encoding: '{coding}'" in response.text


def test_a_body_that_is_said_to_be_as_it_is_is_read(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json={}, headers={"content-encoding": "identity"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "model")


def test_anthropics_clients_find_the_request_under_their_own_header(client: httpx.Client) -> None:
    response = client.get("/v1/messages/nothing", headers={"x-request-id": "mine"})
    assert response.headers["request-id"] == response.headers["x-request-id"] == response.json()["request_id"] == "mine"
    assert "request-id" not in client.get("/health").headers


def test_an_api_that_is_not_connected_yet_says_so_in_the_same_way(tmp_path: Path) -> None:
    node = Stack(tmp_path / "home")
    node.start(["api"])
    try:
        wait_until(lambda: _lives(node), "the API", 10)
        assert httpx.head(f"{node.url}/health", timeout=10).status_code == 200
        assert httpx.head(f"{node.url}/ready", timeout=10).status_code == 503
        for path, envelope in UNKNOWN.items():
            response = httpx.post(f"{node.url}{path}", timeout=10)
            assert response.status_code == 503
            assert "retry-after" in response.headers
            envelope.model_validate(response.json())
    finally:
        node.stop()


def _lives(node: Stack) -> bool:
    try:
        return httpx.get(f"{node.url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
