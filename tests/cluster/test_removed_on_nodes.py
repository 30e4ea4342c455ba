"""A model that lies on the disks of two nodes, deleted by one request."""

from collections.abc import Iterator
from pathlib import Path

import ollama
import pytest

from exo.domain.messages.events import ModelRemoved, RemovalFailed
from tests import tiny_models
from tests.cluster.history import logged_of
from tests.conftest import needs_mlx
from tests.stack import Stack, wait_until

pytestmark = needs_mlx
MODEL = "tiny/llama"
FOLDER = "tiny--llama"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Stack, Stack]]:
    """A node, and beside it a second worker, which has a folder of its operator's too."""
    first = Stack(tmp_path / "first", engine="mlx", default_model="none", offline="1")
    folders = str(tmp_path / "folders")
    second = Stack(tmp_path / "second", nats_url=first.nats_url, engine="mlx", offline="1", model_folders=folders)
    try:
        yield first, second
    finally:
        second.stop()
        first.stop()


def start(nodes: tuple[Stack, Stack], *folders: Path) -> ollama.Client:
    """Have both nodes running, once the model is in each of these folders; a client of them."""
    for folder in folders:
        tiny_models.build("llama", folder)
    first, second = nodes
    first.start()
    second.start(["worker"])
    wait_until(lambda: first.is_up() and holders(first) == {node_of(first), node_of(second)}, "both to tell of it", 60)
    return ollama.Client(host=f"{first.url}/ollama", timeout=60)


def node_of(node: Stack) -> str:
    file = node.home / "node_id"
    return file.read_text().strip() if file.exists() else ""


def holders(node: Stack) -> set[str]:
    """The nodes that have the model on their disks."""
    return {node_id for node_id, one in node.state()["nodes"].items() if MODEL in one["holdings"]}


def test_it_is_gone_from_both_when_the_answer_comes(nodes: tuple[Stack, Stack]) -> None:
    own = [node.home / "models" / FOLDER for node in nodes]
    with start(nodes, *own) as client:
        assert client.delete(MODEL).status == "success"
        assert not any(folder.exists() for folder in own)
        assert holders(nodes[0]) == set()
        with pytest.raises(ollama.ResponseError, match="no node has a model"):
            client.delete(MODEL)
    assert {event.node_id for event in logged_of(nodes[0], ModelRemoved)} == {node_of(node) for node in nodes}


def test_where_one_cannot_delete_it_the_other_does_and_the_answer_names_the_one(
    nodes: tuple[Stack, Stack], tmp_path: Path
) -> None:
    own, operators = nodes[0].home / "models" / FOLDER, tmp_path / "folders" / FOLDER
    with start(nodes, own, operators) as client:
        with pytest.raises(ollama.ResponseError) as refused:
            client.delete(MODEL)
        assert refused.value.status_code == 409
        assert node_of(nodes[1])[:8] in refused.value.error
        assert "which is yours: delete it there" in refused.value.error
        assert node_of(nodes[0])[:8] not in refused.value.error
        assert (own.exists(), operators.exists()) == (False, True)
        assert holders(nodes[0]) == {node_of(nodes[1])}
    (failed,) = logged_of(nodes[0], RemovalFailed)
    assert failed.node_id == node_of(nodes[1])


def test_a_node_that_ends_meanwhile_ends_the_wait_and_the_answer_says_so(nodes: tuple[Stack, Stack]) -> None:
    own = [node.home / "models" / FOLDER for node in nodes]
    with start(nodes, *own) as client:
        nodes[1].kill("worker")
        with pytest.raises(ollama.ResponseError) as refused:
            client.delete(MODEL)
        assert refused.value.status_code == 409
        assert "its node was lost" in refused.value.error
    assert [folder.exists() for folder in own] == [False, True]
