"""Whatever goes wrong before an endpoint sees the request is told in the words of the API that was called."""

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


def test_a_wrong_method_is_a_405(client: httpx.Client) -> None:
    response = client.get("/v1/chat/completions")
    assert response.status_code == 405
    OpenAIError.model_validate(response.json())


def test_anthropics_clients_find_the_request_under_their_own_header(client: httpx.Client) -> None:
    response = client.get("/v1/messages/nothing", headers={"x-request-id": "mine"})
    assert response.headers["request-id"] == response.headers["x-request-id"] == response.json()["request_id"] == "mine"
    assert "request-id" not in client.get("/health").headers


def test_an_api_that_is_not_connected_yet_says_so_in_the_same_way(tmp_path: Path) -> None:
    node = Stack(tmp_path / "home")
    node.start(["api"])
    try:
        wait_until(lambda: _lives(node), "the API", 10)
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
