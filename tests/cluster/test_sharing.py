"""Models that share a node, and replicas that share the requests for a model."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exo.domain.ids import ModelId
from exo.domain.limits import CONTEXT_MOST, HEADROOM_PERCENT
from exo.domain.messages.events import GenerationDispatched, InstanceDeleted
from exo.domain.placement.memory import rooms
from exo.domain.placement.request import PlacementRequest
from exo.domain.state import State
from tests.cluster.chats import Chat, script, wait_all
from tests.cluster.history import logged_of, state
from tests.conftest import TinyModels, needs_mlx
from tests.stack import Stack, wait_until


def place(stack: Stack, **fields: object) -> None:
    """Have a model placed, and wait for the outcome."""
    placed = httpx.post(f"{stack.url}/place_instance", params={"wait": 10}, json=fields, timeout=20)
    assert placed.status_code == 200, placed.text


def ready(stack: Stack) -> int:
    """Runners that are ready."""
    return sum(runner["status"]["type"] == "ready" for runner in state(stack)["runners"].values())


def test_a28_ten_requests_at_once_are_shared_by_two_idle_replicas(stack: Stack) -> None:
    place(stack, model="scripted")
    wait_until(lambda: ready(stack) == 2, "two replicas")
    chats = [Chat(stack, script(20, 0.05)) for _ in range(10)]
    wait_all(chats)
    assert {chat.outcome for chat in chats} == {"complete"}
    shares = Counter(event.instance_id for event in logged_of(stack, GenerationDispatched))
    assert len(shares) == 2
    assert all(4 <= share <= 6 for share in shares.values())


LEFT = 20 * 2**20
"""Bytes of the node's memory that the first model is not promised: too few for the second one beside it."""


@pytest.fixture
def crowded(tmp_path: Path, tiny_model: TinyModels) -> Iterator[Stack]:
    """A node with two models, of which the first is loaded and leaves no room for the second."""
    for name, family in (("first", "llama"), ("second", "qwen3")):
        folder = shutil.copytree(tiny_model(family), tmp_path / "models" / f"tiny--{name}")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT_MOST}))
    node = Stack(
        tmp_path / "home", engine="mlx", default_model="none", offline="1", model_folders=str(tmp_path / "models")
    )
    try:
        node.start()
        wait_until(node.is_up, "the API")
        wait_until(lambda: {"tiny/first", "tiny/second"} <= holdings(node).keys(), "both models")
        place(node, model="first", context=context_that_fills(node, "tiny/first"))
        node.wait_ready()
        yield node
    finally:
        node.stop()


def holdings(stack: Stack) -> dict[str, object]:
    """The models on the disk of the only node, by id."""
    nodes = list(state(stack)["nodes"].values())
    return nodes[0]["holdings"] if nodes else {}


def context_that_fills(stack: Stack, model_id: str) -> int:
    """Tokens whose keys and values take, with the weights, all but LEFT bytes of the node."""
    known = State.model_validate(state(stack))
    (node,) = known.nodes.values()
    card = node.holdings[ModelId(model_id)].card
    (room,) = rooms(known, PlacementRequest(card))
    return ((room.usable - LEFT) * 100 // HEADROOM_PERCENT - card.weight_bytes) // card.kv_bytes(1)


@needs_mlx
def test_a27_a_model_that_has_no_room_waits_for_the_answer_that_is_in_its_way(crowded: Stack) -> None:
    first = Chat(crowded, "Tell me of the sea.", model="first", max_tokens=1000, temperature=0).wait_text()
    second = Chat(crowded, "Hello", model="second", max_tokens=5, temperature=0)
    wait_until(lambda: len(state(crowded)["generations"]) == 2, "both requests")
    assert first.ended_at is None
    wait_all([first, second], 60)
    assert (first.outcome, first.finish_reason) == ("complete", "length")
    assert (second.outcome, second.finish_reason) == ("complete", "length")
    (unloaded,) = logged_of(crowded, InstanceDeleted)
    assert unloaded.reason == "room was needed for tiny/second"
