"""A model whose files do not fit together: the request, and State, say which file it is."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import tiny_models
from tests.cluster.history import state
from tests.conftest import needs_mlx
from tests.stack import Stack, wait_until

pytestmark = needs_mlx

BROKEN, WHOLE = "tiny/broken", "tiny/whole"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node with two models; the header of one's weights is in order, but a tensor has another shape."""
    import mlx.core as mx

    root = tmp_path_factory.mktemp("node")
    folders = root / "models"
    tiny_models.build("llama", folders / "tiny--whole")
    broken = tiny_models.build("llama", folders / "tiny--broken") / "model.safetensors"
    weights = dict(mx.load(str(broken)))
    weights["model.norm.weight"] = mx.ones((95,))
    mx.eval(weights)
    mx.save_safetensors(str(broken), weights)
    node = Stack(root / "home", engine="mlx", default_model="none", model_folders=str(folders), offline="1")
    node.start()
    try:
        wait_until(lambda: node.is_up() and bool(state(node)["nodes"]), "the node to join")
        yield node
    finally:
        node.stop()


@pytest.fixture
def node(shared: Stack) -> Iterator[Stack]:
    """The node, as if it had just been started: no model is placed, and the whole one is whole."""
    yield shared
    (Path(shared.environment["EXO_MODEL_FOLDERS"]) / "tiny--whole" / "chat_template.jinja").unlink(missing_ok=True)
    for instance_id in state(shared)["instances"]:
        httpx.delete(f"{shared.url}/instance/{instance_id}", params={"wait": 10}, timeout=20)
    wait_until(lambda: not shared.runner_pids(), "the runners' end")


def ask(node: Stack, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    return httpx.post(f"{node.url}/v1/chat/completions", json=body, timeout=60)


def test_the_reason_names_the_file_and_stands_in_state(node: Stack) -> None:
    answer = ask(node, BROKEN)
    assert answer.status_code == 503
    failure = state(node)["failures"][BROKEN]
    for reason in (answer.json()["error"]["message"], failure["reason"]):
        assert "tiny--broken/model.safetensors" in reason
        assert "model.norm.weight" in reason
    assert ask(node, WHOLE).status_code == 200


def test_placing_it_by_hand_ends_with_the_reason(node: Stack) -> None:
    placed = node.cli("place", BROKEN)
    assert placed.returncode == 1
    assert f"exo: {BROKEN} cannot be loaded: " in placed.stderr
    assert "model.norm.weight" in placed.stderr


def test_a_folder_that_is_damaged_on_the_disk_is_refused_with_the_reason_until_it_is_whole(node: Stack) -> None:
    weights = Path(node.environment["EXO_MODEL_FOLDERS"]) / "tiny--whole" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:200_000])
    wait_until(lambda: any(one["damaged"] for one in state(node)["nodes"].values()), "the damage to be seen")
    place = httpx.post(f"{node.url}/place_instance", json={"model": WHOLE}, timeout=60)
    for answer in (ask(node, WHOLE), place):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "model_damaged")
        assert f"{weights} has 200,000 bytes of {len(whole):,}: fetch the model again" in error["message"]
    assert WHOLE not in [one["id"] for one in httpx.get(f"{node.url}/v1/models").json()["data"]]
    weights.write_bytes(whole)
    wait_until(lambda: not any(one["damaged"] for one in state(node)["nodes"].values()), "the model to be whole")
    assert ask(node, WHOLE).status_code == 200


def test_a_broken_chat_template_is_told_at_once_and_tried_no_more(node: Stack) -> None:
    template = Path(node.environment["EXO_MODEL_FOLDERS"]) / "tiny--whole" / "chat_template.jinja"
    template.write_text("{% for %}")
    answer = ask(node, WHOLE)
    assert answer.status_code == 503
    assert f"{template} holds a broken chat template" in answer.json()["error"]["message"]
    assert "in a row" not in state(node)["failures"][WHOLE]["reason"]
