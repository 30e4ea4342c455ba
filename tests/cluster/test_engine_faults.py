"""Engines that fail, crash, run out of memory or hang: the client hears of it, and the next request is answered."""

from collections.abc import Iterator

import pytest

from tests.cluster.chats import Chat, script, words
from tests.cluster.history import assert_sound
from tests.cluster.node_contract import NodeContract
from tests.stack import Stack, wait_until

STEP_TIMEOUT = 2.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node that takes a step of two seconds for a hang."""
    node = Stack(tmp_path_factory.mktemp("node") / "home", step_timeout=str(STEP_TIMEOUT))
    try:
        yield node.start_ready()
    finally:
        node.stop()


def faulty(kind: str, after: int = 3) -> str:
    """A script that emits `after` words and then fails."""
    return script(10, 0.02, fault={"kind": kind, "after": after})


def test_a_request_that_fails_alone_leaves_the_others_alone(node: Stack) -> None:
    neighbour = Chat(node, script(60, 0.02)).wait_text()
    victim = Chat(node, faulty("error")).wait()
    assert victim.status == 200
    assert (victim.text, victim.outcome, victim.code) == ("".join(words(3)), "error", "engine_error")
    whole = Chat(node, faulty("error"), stream=False).wait()
    assert (whole.status, whole.code) == (500, "engine_error")
    assert (neighbour.wait().outcome, neighbour.text) == ("complete", "".join(words(60)))


@pytest.mark.parametrize(
    ("kind", "reason", "within"),
    [
        ("crash", "exit code 70", 3),
        ("out_of_memory", "MemoryError", 3),
        ("hang", "did not end within 2 s", STEP_TIMEOUT + 3),
    ],
)
def test_an_engine_that_is_lost_takes_its_requests_along_and_comes_back(
    node: Stack, kind: str, reason: str, within: float
) -> None:
    neighbour = Chat(node, script(400, 0.02)).wait_text()
    whole = Chat(node, script(400, 0.02), stream=False)
    victim = Chat(node, faulty(kind)).wait_text(3)
    for chat in (victim, neighbour, whole):
        chat.wait(within)
        assert (chat.outcome, chat.code) == ("error", "runner_failed"), chat
        assert chat.error is not None and reason in chat.error["message"], chat
    assert victim.text == "".join(words(3))
    assert (whole.status, neighbour.status) == (502, 200)
    assert Chat(node, "the next one").wait(20).text == "the next one"


class TestScriptedNode(NodeContract):
    """All of the contract."""

    model = "scripted"
    story = script(400, 0.02)
    answer = "capital"
    """It says what it is asked."""


def test_a_fault_before_the_first_token_is_an_http_error_also_for_a_stream(node: Stack) -> None:
    victim = Chat(node, faulty("error", after=0)).wait()
    assert (victim.status, victim.code) == (500, "engine_error")


def test_the_log_is_sound_after_all_this(node: Stack) -> None:
    wait_until(node.is_ready, "readiness")
    assert_sound(node)
