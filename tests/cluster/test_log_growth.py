"""How the event log grows: by what is decided, not by time and not by tokens."""

import httpx
import pytest

from exo.domain.messages.events import NodeChanged
from tests.cluster.chats import Chat
from tests.cluster.history import logged, state
from tests.stack import Stack, wait_until

QUIET = 5.0
"""Seconds: several beats, ticks and looks at the machine."""


def test_an_idle_cluster_adds_nothing(shared_stack: Stack) -> None:
    before = len(logged(shared_stack))
    with (
        httpx.stream("GET", f"{shared_stack.url}/events", params={"after": before}, timeout=QUIET) as events,
        pytest.raises(httpx.ReadTimeout),
    ):
        for line in events.iter_lines():
            # Memory that other programs take is news to a cluster, and not a matter of this test.
            assert not line.startswith("data:") or '"type":"NodeChanged"' in line, line


def test_a_thousand_tokens_are_three_events(shared_stack: Stack) -> None:
    before = len(logged(shared_stack))
    message = " ".join(["ha"] * 1000)
    answer = Chat(shared_stack, message, stream_options={"include_usage": True}).wait()
    assert answer.text == message
    wait_until(lambda: not state(shared_stack)["generations"], "the end's event")
    added = [event.type for event in logged(shared_stack)[before:] if not isinstance(event, NodeChanged)]
    assert added == ["GenerationQueued", "GenerationDispatched", "GenerationFinished"]
