"""The stream and the log in SQLite each bring the other back: one of them may be lost."""

import shutil

import pytest

from tests.cluster.chats import Chat
from tests.cluster.history import assert_sound, logged
from tests.stack import Stack


@pytest.mark.parametrize("folder", ["nats", "log"])
def test_what_is_lost_comes_back_from_the_other(stack: Stack, folder: str) -> None:
    assert Chat(stack, "hello").wait().text == "hello"
    stack.stop()
    before = logged(stack)
    shutil.rmtree(stack.home / folder)
    stack.start_ready()
    assert logged(stack)[: len(before)] == before
    assert_sound(stack)
