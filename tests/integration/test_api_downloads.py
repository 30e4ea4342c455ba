"""Models brought onto a real node's disk because somebody asked for it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.stack import Stack, wait_until

EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct"
ON_HUB = "HuggingFaceTB/SmolLM2-360M-Instruct"


@pytest.fixture
def silent_hub() -> Iterator[str]:
    """A hub that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def client(tmp_path: Path, silent_hub: str) -> Iterator[httpx.Client]:
    """Asks a node with an empty disk."""
    node = Stack(tmp_path / "home", engine="mlx", default_model="none")
    node.environment["HF_ENDPOINT"] = silent_hub
    try:
        node.start()
        wait_until(node.is_up, "the API")
        with httpx.Client(base_url=node.url, timeout=30) as client:
            wait_until(lambda: bool(client.get("/models").json().get("models")), "the worker")
            yield client
    finally:
        node.stop()


def start(client: httpx.Client, model: str) -> httpx.Response:
    body = {"node_id": client.get("/node_id").json(), "model_id": model}
    return client.post("/download/start", params={"wait": 10}, json=body)


def downloads(client: httpx.Client) -> dict[str, tuple[str, bool]]:
    found = client.get("/download").json()["downloads"]
    return {one["model_id"]: (one["status"], one["requested"]) for one in found}


def status(client: httpx.Client, model: str) -> str:
    return str(client.get(f"/v1/models/{model}").json()["status"])


def test_a_model_is_brought_onto_the_disk_without_an_instance(client: httpx.Client) -> None:
    assert status(client, EMBEDDED) == "obtainable"
    assert start(client, EMBEDDED).json()["status"] == "done"
    wait_until(lambda: status(client, EMBEDDED) == "on_disk", "the model", 60)
    assert downloads(client) == {}
    assert client.get("/state/instances").json() == {}
    assert start(client, EMBEDDED).json()["error"]["code"] == "already_on_disk"


def test_a_download_is_taken_back(client: httpx.Client) -> None:
    start(client, ON_HUB)
    wait_until(lambda: downloads(client) == {ON_HUB: ("running", True)}, "its begin", 10)
    assert start(client, ON_HUB).json()["error"]["code"] == "already_requested"
    path = f"/download/{client.get('/node_id').json()}/{ON_HUB}"
    assert client.delete(path, params={"wait": 10}).json()["status"] == "done"
    wait_until(lambda: downloads(client) == {ON_HUB: ("failed", False)}, "its end", 10)
    assert client.delete(path, params={"wait": 10}).json()["error"]["code"] == "download_not_found"
