"""Requests of megabytes, to every API: an answer or a refusal in its envelope, and the process goes on."""

import base64
import json
from typing import Any

import httpx
import pytest

from exo.api.app import BODY_MOST

MEGABYTES = "x" * 4_000_000
IMAGE = f"data:image/png;base64,{base64.b64encode(bytes(3_000_000)).decode()}"


def conversation(content: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


PROMPTS = {
    "/v1/chat/completions": conversation(MEGABYTES),
    "/v1/completions": {"prompt": MEGABYTES},
    "/v1/responses": {"input": MEGABYTES},
    "/v1/messages": {**conversation(MEGABYTES), "max_tokens": 5},
}
ENVELOPES = {"/v1/messages": {"type", "error", "request_id"}}
IMAGES = {
    "/v1/chat/completions": conversation(
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}]
    ),
    "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}]},
    "/v1/messages": {
        **conversation([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}]),
        "max_tokens": 5,
    },
}


def refusal(client: httpx.Client, path: str, body: bytes, status: int) -> str:
    """What is said instead of an answer, in the API's envelope; the next request is answered."""
    answer = client.post(path, content=body)
    assert answer.status_code == status, answer.text[:300]
    assert set(answer.json()) == ENVELOPES.get(path, {"error"})
    hello = {"model": "scripted", **conversation("still there?")}
    assert client.post("/v1/chat/completions", json=hello).status_code == 200
    return answer.text


@pytest.mark.parametrize("path", PROMPTS)
def test_a29_four_megabytes_of_text_reach_the_engine(client: httpx.Client, path: str) -> None:
    body = json.dumps({"model": "scripted", **PROMPTS[path]}).encode()
    said = refusal(client, path, body, 400)
    assert "context_length_exceeded" in said
    assert "4000000" in said and "8192" in said


@pytest.mark.parametrize("path", IMAGES)
def test_a29_four_megabytes_of_base64_are_refused_by_name(client: httpx.Client, path: str) -> None:
    body = json.dumps({"model": "scripted", **IMAGES[path]}).encode()
    assert "image" in refusal(client, path, body, 400)


def test_a29_four_megabytes_reach_the_engine_from_ollamas_clients(client: httpx.Client) -> None:
    body = json.dumps({"model": "scripted", **conversation(MEGABYTES), "stream": False}).encode()
    said = refusal(client, "/ollama/api/chat", body, 400)
    assert "4000000" in said and "8192" in said


def test_a29_a_body_over_the_limit_is_told_of_in_ollamas_envelope(client: httpx.Client) -> None:
    assert "too large" in refusal(client, "/ollama/api/chat", b" " * (BODY_MOST + 1), 413).lower()


@pytest.mark.parametrize("path", PROMPTS)
def test_a29_a_body_over_the_limit_is_a_413(client: httpx.Client, path: str) -> None:
    assert "request_too_large" in refusal(client, path, b" " * (BODY_MOST + 1), 413)
