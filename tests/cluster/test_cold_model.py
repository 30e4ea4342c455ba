"""Requests for a model that is not placed: it is placed once, and all of them are answered."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from exo.domain.messages.events import InstancePlaced, RunnerStarted
from tests.cluster.chats import Chat, wait_all
from tests.cluster.history import logged_of, state
from tests.stack import Stack, wait_until


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Stack]:
    """A node without a default model."""
    node = Stack(tmp_path / "home", default_model="none")
    try:
        node.start()
        wait_until(node.is_up, "the API")
        wait_until(lambda: bool(state(node)["nodes"]), "the worker")
        yield node
    finally:
        node.stop()


def test_a26_ten_requests_at_once_place_the_model_once_and_hear_that_they_wait(cold: Stack) -> None:
    assert logged_of(cold, InstancePlaced) == []
    cold.signal("worker", signal.SIGSTOP)  # so that the way to readiness takes as long as with a real model
    chats = [Chat(cold, f"answer number {number}") for number in range(10)]
    wait_until(lambda: all(chat.comments for chat in chats), "signs of life", 10)
    cold.signal("worker", signal.SIGCONT)
    wait_all(chats)
    assert [chat.text for chat in chats] == [f"answer number {number}" for number in range(10)]
    assert {chat.outcome for chat in chats} == {"complete"}
    assert all("waiting" in chat.comments[0] for chat in chats)
    assert len(logged_of(cold, InstancePlaced)) == 1
    assert len(logged_of(cold, RunnerStarted)) == 1
