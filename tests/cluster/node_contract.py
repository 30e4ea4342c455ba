"""What every engine's node does when the process with the engine is lost. Each engine's tests inherit it and give the
fixture `node`, a node that serves one model."""

import os
import signal
from collections.abc import Mapping

from tests.cluster.chats import Chat
from tests.cluster.history import assert_sound
from tests.stack import Stack


class NodeContract:
    """Tests of a node with a model on one engine."""

    model: str
    """Its name."""
    story = "Tell me a long story about the sea."
    """What is answered at length."""
    question = "What is the capital of France?"
    answer = "Paris"
    """A part of the answer to that."""

    def test_a_killed_runner_ends_its_requests_and_nothing_else_and_comes_back(self, node: Stack) -> None:
        limit: Mapping[str, object] = {"model": self.model, "temperature": 0, "max_tokens": 2000}
        streamed = [Chat(node, self.story, **limit) for _ in range(2)]
        whole = Chat(node, self.story, stream=False, **limit)
        for chat in streamed:
            chat.wait_text(5)
        (runner,) = node.runner_pids()
        os.kill(runner, signal.SIGKILL)
        for chat in [*streamed, whole]:
            assert (chat.wait(5).outcome, chat.code) == ("error", "runner_failed")
        assert (whole.status, {chat.status for chat in streamed}) == (502, {200})
        assert [name for name, process in node.processes.items() if process.poll() is not None] == []
        assert self.answer in Chat(node, self.question, **{**limit, "max_tokens": 20}).wait(90).text
        assert node.runner_pids() != [runner]
        assert_sound(node, model=self.model)
