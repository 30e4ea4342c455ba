"""`exo models remove` beside a node that runs."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import tiny_models
from tests.cluster.history import state
from tests.conftest import needs_mlx
from tests.stack import Stack, wait_until

pytestmark = needs_mlx
MODEL = "tiny/llama"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Stack]:
    """A node that has a model in its own folder."""
    home = tmp_path / "home"
    tiny_models.build("llama", home / "models" / "tiny--llama")
    node = Stack(home, engine="mlx", default_model="none", offline="1")
    node.start()
    try:
        wait_until(lambda: node.is_up() and has(node), "the node to tell of its model", 60)
        yield node
    finally:
        node.stop()


def has(node: Stack) -> bool:
    """Whether a node has told that the model is on its disk."""
    return any(MODEL in one["holdings"] for one in state(node)["nodes"].values())


def test_a_model_that_is_loaded_is_kept_until_it_is_unloaded_and_then_the_node_tells_that_it_is_gone(
    node: Stack,
) -> None:
    placed = httpx.post(f"{node.url}/place_instance", params={"wait": 10}, json={"model": MODEL}, timeout=20)
    assert placed.status_code < 300, placed.text
    (instance_id,) = state(node)["instances"]
    refused = node.cli("models", "remove", MODEL)
    assert refused.returncode == 1
    assert f"{MODEL} is loaded from there: `exo unload {instance_id[:8]}` takes it away first" in refused.stderr
    assert (node.home / "models" / "tiny--llama").is_dir()
    assert node.cli("unload", instance_id[:8]).returncode == 0
    assert node.cli("models", "remove", MODEL).stdout == f"{MODEL} is gone from the disk\n"
    wait_until(lambda: not has(node), "the node to tell that it is gone")


def test_by_force_it_is_removed_while_it_is_loaded(node: Stack) -> None:
    placed = httpx.post(f"{node.url}/place_instance", params={"wait": 10}, json={"model": MODEL}, timeout=20)
    assert placed.status_code < 300, placed.text
    assert node.cli("models", "remove", "--force", MODEL).returncode == 0
    assert not (node.home / "models" / "tiny--llama").exists()
    wait_until(lambda: not has(node), "the node to tell that it is gone")
