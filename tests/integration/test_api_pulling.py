"""Models fetched from a hub, as Ollama's client and the cluster's own endpoints ask for it."""

from collections.abc import Iterator

import httpx
import ollama
import pytest
from hub_server import REPOSITORY, Hub

from tests.stack import Stack, wait_until


@pytest.fixture
def client(hub_node: Stack) -> Iterator[httpx.Client]:
    """Asks the node, to which the hub's model is known."""
    with httpx.Client(base_url=hub_node.url, timeout=60) as one:
        one.post("/models/add", params={"wait": 10}, json={"model_id": REPOSITORY}).raise_for_status()
        yield one


@pytest.fixture
def sdk(client: httpx.Client) -> Iterator[ollama.Client]:
    """Ollama's client at the same node."""
    with ollama.Client(host=f"{client.base_url}/ollama", timeout=60) as one:
        yield one


def status(client: httpx.Client) -> str:
    return str(client.get(f"/v1/models/{REPOSITORY}").json()["status"])


def downloads(client: httpx.Client) -> list[tuple[str, bool]]:
    found = client.get("/download").json()["downloads"]
    return [(one["status"], one["requested"]) for one in found]


def test_a_pull_tells_how_far_it_is_until_the_model_is_there(
    sdk: ollama.Client, client: httpx.Client, hub: Hub, hub_node: Stack
) -> None:
    hub.hold.clear()
    parts = sdk.pull(REPOSITORY, stream=True)
    assert next(parts).status == "pulling manifest"
    half = next(part for part in parts if part.completed)
    assert half.total is not None and half.completed is not None
    assert 0 < half.completed < half.total
    assert half.digest is not None and half.digest.startswith("sha256:")
    assert downloads(client) == [("running", True)]
    hub.hold.set()
    rest = list(parts)
    assert (rest[-2].completed, rest[-1].status) == (half.total, "success")
    assert status(client) == "on_disk"
    assert (hub_node.home / "models" / REPOSITORY.replace("/", "--") / "model.safetensors").is_file()
    assert f"{REPOSITORY}:latest" in [one.model for one in sdk.list().models]


def test_a_pull_in_one_piece_answers_when_the_model_is_there(sdk: ollama.Client, client: httpx.Client) -> None:
    assert sdk.pull(REPOSITORY).status == "success"
    assert status(client) == "on_disk"


def test_a_pull_goes_on_when_its_client_leaves_and_the_next_one_joins_it(
    sdk: ollama.Client, client: httpx.Client, hub: Hub
) -> None:
    hub.hold.clear()
    parts = sdk.pull(REPOSITORY, stream=True)
    next(part for part in parts if part.completed)
    parts.close()  # pyright: ignore  a generator, though it is not said
    again = sdk.pull(REPOSITORY, stream=True)
    assert next(again).status == "pulling manifest"
    hub.hold.set()
    assert [part.status for part in again][-1] == "success"
    weights = [name for name, _ in hub.fetched if name == "model.safetensors"]
    assert len(weights) == 1


def test_a_model_that_the_hub_gives_no_more_is_an_error_that_says_so(
    sdk: ollama.Client, client: httpx.Client, hub: Hub
) -> None:
    hub.status = 404
    with pytest.raises(ollama.ResponseError, match="could not be had") as streamed:
        list(sdk.pull(REPOSITORY, stream=True))
    assert REPOSITORY in streamed.value.error
    with pytest.raises(ollama.ResponseError, match="could not be had") as whole:
        sdk.pull(REPOSITORY)
    assert whole.value.status_code == 503
    assert downloads(client) == [("failed", False)]
    hub.status = 200
    assert sdk.pull(REPOSITORY).status == "success"


def test_a_download_that_is_taken_back_ends_the_pull_and_what_came_is_not_fetched_again(
    sdk: ollama.Client, client: httpx.Client, hub: Hub
) -> None:
    hub.hold.clear()
    parts = sdk.pull(REPOSITORY, stream=True)
    next(part for part in parts if part.completed)
    node_id = client.get("/node_id").json()
    assert client.delete(f"/download/{node_id}/{REPOSITORY}", params={"wait": 10}).json()["status"] == "done"
    with pytest.raises(ollama.ResponseError, match="could not be had"):
        list(parts)
    hub.hold.set()
    wait_until(lambda: ("running", True) not in downloads(client), "its end")
    assert sdk.pull(REPOSITORY).status == "success"
    ranges = [asked for name, asked in hub.fetched if name == "model.safetensors"]
    assert ranges[0] is None
    assert ranges[-1] is not None


def test_the_clusters_own_endpoint_brings_it_onto_a_node(client: httpx.Client, hub: Hub) -> None:
    hub.hold.clear()
    body = {"node_id": client.get("/node_id").json(), "model_id": REPOSITORY}
    assert client.post("/download/start", params={"wait": 10}, json=body).json()["status"] == "done"
    wait_until(hub.half_sent.is_set, "half of it")
    assert downloads(client) == [("running", True)]
    hub.hold.set()
    wait_until(lambda: status(client) == "on_disk", "the model")
    assert downloads(client) == []
