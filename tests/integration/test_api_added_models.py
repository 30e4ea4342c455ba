"""Models of the hub made known to a real node, found, and forgotten, beside a hub of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hub_server import REPOSITORY, Hub

from tests.stack import Stack, wait_until

EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def client(hub_node: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=hub_node.url, timeout=60) as one:
        yield one


def add(client: httpx.Client, model_id: str = REPOSITORY) -> httpx.Response:
    return client.post("/models/add", params={"wait": 10}, json={"model_id": model_id})


def known(client: httpx.Client) -> dict[str, tuple[str, bool]]:
    return {one["model_id"]: (one["status"], one["added"]) for one in client.get("/models").json()["models"]}


def test_a_model_is_added_survives_a_restart_and_is_forgotten(client: httpx.Client, hub_node: Stack) -> None:
    answer = add(client)
    assert (answer.status_code, answer.json()["status"]) == (200, "done"), answer.text
    card = answer.json()["events"][0]["entry"]["event"]["card"]
    assert (card["family"], card["layers"], card["license"]) == ("llama", 2, "mit")
    assert card["sources"] == [{"type": "hub", "repository": REPOSITORY, "revision": "main"}]
    assert client.get(f"/v1/models/{REPOSITORY}").json()["status"] == "obtainable"
    assert known(client)[REPOSITORY] == ("obtainable", True)
    assert known(client)[EMBEDDED] == ("obtainable", False)
    hub_node.stop()
    hub_node.start()
    hub_node.wait_worker()
    wait_until(lambda: known(client).get(REPOSITORY) == ("obtainable", True), "the model after the restart")
    forgotten = client.delete(f"/models/custom/{REPOSITORY}", params={"wait": 10})
    assert forgotten.json()["events"][-1]["entry"]["event"]["type"] == "ModelForgotten"
    wait_until(lambda: REPOSITORY not in known(client), "the model to be forgotten")
    why = f"/log/why/{REPOSITORY}"
    wait_until(lambda: client.get(why).json().get("summary") == f"{REPOSITORY} was forgotten", "the log")
    added, *_ = client.get(why).json()["steps"]
    assert added["text"] == f"{REPOSITORY} was made known: llama, float32, 0.0 GB"
    assert added["cause"]["name"] == "AddModel"


def test_what_is_known_already_is_not_asked_of_the_hub(client: httpx.Client, hub: Hub) -> None:
    error = add(client, EMBEDDED).json()["error"]
    assert (error["code"], error["param"]) == ("already_known", "model_id")
    assert hub.fetched == []


def test_an_added_model_is_brought_onto_the_disk_and_is_known_there_when_forgotten(
    client: httpx.Client, hub_node: Stack
) -> None:
    add(client)
    body = {"node_id": client.get("/node_id").json(), "model_id": REPOSITORY}
    assert client.post("/download/start", params={"wait": 10}, json=body).json()["status"] == "done"
    wait_until(lambda: known(client)[REPOSITORY] == ("on_disk", True), "the download")
    assert client.delete("/models/custom/model", params={"wait": 10}).json()["status"] == "done"
    wait_until(lambda: known(client)[REPOSITORY] == ("on_disk", False), "the model to be forgotten")


def test_a_model_that_an_instance_has_is_not_forgotten(client: httpx.Client) -> None:
    add(client)
    placed = client.post("/place_instance", params={"wait": 10}, json={"model": REPOSITORY})
    assert placed.json()["status"] == "done", placed.text
    refused = client.delete(f"/models/custom/{REPOSITORY}", params={"wait": 10})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_in_use")


@pytest.mark.parametrize(
    ("model_id", "status", "code"),
    [
        ("nobody/nothing", 404, "model_not_found"),
        ("no id at all", 400, "invalid_request"),
        ("../../etc", 400, "invalid_request"),
        ("", 400, "invalid_request"),
    ],
)
def test_what_cannot_be_added_is_told_why(client: httpx.Client, model_id: str, status: int, code: str) -> None:
    answer = add(client, model_id)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["param"] in {"model_id", "model"}


def test_only_what_was_added_can_be_forgotten(client: httpx.Client) -> None:
    answer = client.delete(f"/models/custom/{EMBEDDED}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_known_models_are_found_before_those_of_the_hub(client: httpx.Client, hub: Hub) -> None:
    found = client.get("/models/search", params={"query": "smollm2 instruct", "limit": 3}).json()
    assert found["hub_error"] is None
    assert found["models"][0]["id"].startswith("HuggingFaceTB/SmolLM2")
    assert len(found["models"]) == 3
    add(client)
    found = client.get("/models/search", params={"query": "model"}).json()["models"]
    assert [(one["id"], one["status"], one["downloads"]) for one in found] == [
        (REPOSITORY, "obtainable", 7),
        ("other/model-2", "on_hub", 3),
    ]
    assert client.get("/models/search", params={"limit": 0}).json()["error"]["param"] == "limit"


def test_the_command_line_adds_finds_pulls_and_forgets(hub_node: Stack, client: httpx.Client) -> None:
    added = hub_node.cli("models", "add", REPOSITORY)
    assert added.stdout == f"{REPOSITORY} is known now: llama, float32, 0.0 GB, not fetched yet\n", added.stderr
    assert "other/model-2" in hub_node.cli("models", "search", "model").stdout
    pulled = hub_node.cli("models", "pull", "model")
    assert pulled.returncode == 0, pulled.stderr
    forgotten = hub_node.cli("models", "forget", REPOSITORY)
    assert forgotten.stdout == f"{REPOSITORY} is forgotten\n", forgotten.stderr


def test_offline_only_known_models_are_found_and_the_answer_says_so(shared_stack: Stack) -> None:
    found = httpx.get(f"{shared_stack.url}/models/search", params={"query": "scripted"}, timeout=60).json()
    assert [one["id"] for one in found["models"]] == ["exo/scripted"]
    assert "the hub cannot be reached" in found["hub_error"]
    refused = httpx.post(f"{shared_stack.url}/models/add", json={"model_id": REPOSITORY}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "hub_unreachable")


def test_where_exo_is_told_to_stay_offline_nobody_is_asked(tmp_path: Path, hub: Hub) -> None:
    stack = Stack(tmp_path / "home", offline="1")
    stack.environment["HF_ENDPOINT"] = hub.url
    try:
        stack.start_ready()
        found = httpx.get(f"{stack.url}/models/search", timeout=30).json()
        assert ("EXO_OFFLINE" in found["hub_error"], hub.searched) == (True, [])
    finally:
        stack.stop()
