"""A node with a real model: the embedded one, on MLX."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from exo.models.catalog import EMBEDDED
from tests.cluster.chats import Chat
from tests.cluster.history import assert_sound
from tests.stack import Stack, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("mlx") is None, reason="the mlx extra is not installed"),
]
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def node(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node that serves the embedded model."""
    node = Stack(
        tmp_path_factory.mktemp("node") / "home",
        engine="mlx",
        default_model=EMBEDDED,
        model_folders=str(embedded_model.parent),
        offline="1",
    )
    try:
        yield node.start_ready()
    finally:
        node.stop()


def ask(node: Stack, question: str = QUESTION, **more: object) -> Chat:
    """Ask with temperature 0."""
    return Chat(node, question, model=EMBEDDED, temperature=0, **more)


def test_it_knows_the_capital_of_france(node: Stack) -> None:
    answer = ask(node, max_tokens=20).wait(60)
    assert answer.outcome == "complete"
    assert "Paris" in answer.text
    assert len(answer.pieces) > 3
    whole = ask(node, max_tokens=20, stream=False).wait(60)
    assert whole.text == answer.text


def test_a_runner_killed_in_the_middle_of_an_answer_is_an_error_and_then_all_is_well(node: Stack) -> None:
    long = ask(node, "Tell me a long story about the sea.", max_tokens=400).wait_text(5)
    (runner,) = node.runner_pids()
    os.kill(runner, signal.SIGKILL)
    assert (long.wait(5).outcome, long.code) == ("error", "runner_failed")
    assert "Paris" in ask(node, max_tokens=20).wait(60).text
    assert_sound(node, model=EMBEDDED)


def test_a_prompt_that_takes_long_to_read_holds_nobody_up(node: Stack) -> None:
    huge = ask(node, "The sea is deep and wide. " * 120_000, max_tokens=5, stream=False)
    wait_until(lambda: generations(node) == 1, "the huge prompt is with the runner")
    assert "Paris" in ask(node, max_tokens=10).wait(60).text
    assert huge.ended_at is None
    assert (huge.wait(60).outcome, huge.code) == ("error", "context_length_exceeded")


def generations(node: Stack) -> int:
    """How many were given to an instance and are not over."""
    state = httpx.get(f"http://127.0.0.1:{node.api_port}/state").json()
    return sum(one["instance_id"] is not None for one in state["generations"].values())
