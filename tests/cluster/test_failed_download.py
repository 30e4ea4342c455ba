"""A model that cannot be had: its request fails with the reason, and the node tries once a request."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cluster.history import logged, state
from tests.stack import Stack, wait_until

MODEL = "HuggingFaceTB/SmolLM2-360M-Instruct"


@pytest.fixture
def node(tmp_path: Path, embedded_model: Path) -> Iterator[Stack]:
    node = Stack(tmp_path / "home", engine="mlx", default_model="none", model_folders=str(embedded_model.parent))
    node.environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
    node.start()
    try:
        wait_until(lambda: node.is_up() and bool(models(node)), "the node to say what it can get")
        yield node
    finally:
        node.stop()


def models(node: Stack) -> list[object]:
    answer = httpx.get(f"{node.url}/v1/models")
    return answer.json()["data"] if answer.status_code == 200 else []


def test_a_download_that_fails_is_tried_once_and_its_request_says_why(node: Stack) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    for _ in range(2):  # the second is refused at once: the failure is remembered for a while
        answer = httpx.post(f"{node.url}/v1/chat/completions", json=body, timeout=60)
        assert answer.status_code == 503
        assert "hub" in answer.json()["error"]["message"]
    assert [download["status"] for download in downloads(node)] == ["failed"]
    assert [event.type for event in logged(node) if event.type.startswith("Download")] == [
        "DownloadStarted",
        "DownloadFailed",
    ]


def downloads(node: Stack) -> list[dict[str, str]]:
    return list(state(node)["downloads"].values())
