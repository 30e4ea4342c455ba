"""Ollama's client has models deleted from a node's disk."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import ollama
import pytest

from exo.models.catalog import EMBEDDED
from tests import tiny_models
from tests.conftest import needs_mlx
from tests.stack import Stack, wait_until

pytestmark = needs_mlx
OWN = "tiny/llama"
OPERATORS = "tiny/qwen3"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Stack]:
    """A node with a model in exo's own folder, and one in a folder that its operator lists."""
    home, folders = tmp_path / "home", tmp_path / "folders"
    tiny_models.build("llama", home / "models" / "tiny--llama")
    tiny_models.build("qwen3", folders / "tiny--qwen3")
    node = Stack(home, engine="mlx", default_model="none", offline="1", model_folders=str(folders))
    try:
        node.start()
        wait_until(lambda: node.is_up() and on_disk(node) == {OWN, OPERATORS}, "the node to tell of its models", 60)
        yield node
    finally:
        node.stop()


@pytest.fixture
def sdk(node: Stack) -> Iterator[ollama.Client]:
    with ollama.Client(host=f"{node.url}/ollama", timeout=60) as one:
        yield one


def on_disk(node: Stack) -> set[str]:
    tags: list[dict[str, str]] = httpx.get(f"{node.url}/ollama/api/tags", timeout=30).json().get("models", [])
    return {one["name"].removesuffix(":latest") for one in tags}


def refusal(sdk: ollama.Client, model: str) -> tuple[int, str]:
    with pytest.raises(ollama.ResponseError) as refused:
        sdk.delete(model)
    return refused.value.status_code, refused.value.error


def load(node: Stack, model: str) -> str:
    placed = httpx.post(f"{node.url}/place_instance", params={"wait": 10}, json={"model": model}, timeout=20)
    assert placed.status_code < 300, placed.text
    (instance_id,) = node.state()["instances"]
    return str(instance_id)


def test_a_model_is_gone_from_exos_own_folder(node: Stack, sdk: ollama.Client) -> None:
    assert sdk.delete(f"{OWN}:latest").status == "success"
    assert not (node.home / "models" / "tiny--llama").exists()
    assert on_disk(node) == {OPERATORS}
    status, said = refusal(sdk, OWN)
    assert (status, f"no node has a model '{OWN}' on its disk" in said) == (404, True)
    told = node.cli("log", "why", OWN)
    assert "deleted tiny/llama from its disk" in told.stdout, told


def test_what_was_fetched_can_be_deleted_and_fetched_again(node: Stack, sdk: ollama.Client) -> None:
    for _ in range(2):
        assert sdk.pull(EMBEDDED).status == "success"
        assert EMBEDDED in on_disk(node)
        assert sdk.delete(EMBEDDED).status == "success"
        assert on_disk(node) == {OWN, OPERATORS}
    assert refusal(sdk, EMBEDDED)[0] == 404


def test_what_is_loaded_is_kept_until_it_is_unloaded(node: Stack, sdk: ollama.Client) -> None:
    instance_id = load(node, OWN)
    status, said = refusal(sdk, OWN)
    assert (status, f"instance {instance_id} has it: unload it first" in said) == (409, True)
    assert (node.home / "models" / "tiny--llama").is_dir()
    sdk.generate(OWN, keep_alive=0)
    wait_until(lambda: not node.state()["instances"], "the model to be unloaded")
    assert sdk.delete(OWN).status == "success"
    assert on_disk(node) == {OPERATORS}


def test_what_is_the_operators_is_never_deleted(node: Stack, sdk: ollama.Client, tmp_path: Path) -> None:
    status, said = refusal(sdk, OPERATORS)
    assert (status, "which is yours: delete it there" in said) == (409, True)
    assert (tmp_path / "folders" / "tiny--qwen3" / "config.json").is_file()
    assert on_disk(node) == {OWN, OPERATORS}
    assert not any(one["removals"] for one in node.state()["nodes"].values())


def test_a_model_that_is_named_nowhere_is_not_found(sdk: ollama.Client) -> None:
    assert refusal(sdk, "../home")[0] == 404
    assert refusal(sdk, "nobody/nothing")[0] == 404


def test_the_body_is_held_to_its_fields(node: Stack) -> None:
    with httpx.Client(base_url=f"{node.url}/ollama/api", timeout=30) as client:
        for body in ({}, {"model": OWN, "force": True}):
            refused = client.request("DELETE", "/delete", json=body)
            assert (refused.status_code, list(refused.json())) == (400, ["error"])
    assert on_disk(node) == {OWN, OPERATORS}
