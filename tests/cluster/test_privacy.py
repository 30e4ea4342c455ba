"""What people ask and are told stays out of the event log, unless the operator wants it there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from exo.domain.messages.events import GenerationFinished, GenerationQueued
from tests.cluster.chats import Chat
from tests.cluster.history import logged_of
from tests.stack import PROCESSES, Stack, wait_until

ASKED, ANSWERED = "xylophonist", "quixotically"
ANSWER_BYTES = [list(ANSWERED.encode()), list(b" done")]
"""As bytes, so that the answer's word does not stand in the prompt."""


def ask(stack: Stack) -> None:
    """Ask with one unusual word, and be told another."""
    chat = Chat(stack, json.dumps({"tokens": ANSWER_BYTES}), user=ASKED)
    assert chat.wait().text == f"{ANSWERED} done"
    assert Chat(stack, f"the {ASKED} plays").wait().text == f"the {ASKED} plays"


def files_with(folder: Path, word: str) -> list[str]:
    """The files of a folder in whose bytes a word stands."""
    return [file.name for file in sorted(folder.rglob("*")) if file.is_file() and word.encode() in file.read_bytes()]


def test_nothing_of_a_chat_is_in_the_log_its_wal_or_what_the_processes_say(shared_stack: Stack) -> None:
    ask(shared_stack)
    folder = shared_stack.home / "log"
    assert (folder / "exo.sqlite3-wal").stat().st_size > 0
    assert [files_with(folder, word) for word in (ASKED, ANSWERED)] == [[], []]
    assert not [
        name for name in PROCESSES if ASKED in shared_stack.output(name) or ANSWERED in shared_stack.output(name)
    ]
    assert {event.prompt for event in logged_of(shared_stack, GenerationQueued)} == {None}


@pytest.fixture
def open_book(tmp_path: Path) -> Iterator[Stack]:
    """A node that keeps prompts and answers."""
    node = Stack(tmp_path / "home", log_prompts="1")
    try:
        yield node.start_ready()
    finally:
        node.stop()


def test_with_log_prompts_both_are_there(open_book: Stack) -> None:
    ask(open_book)
    assert any(ASKED in (event.prompt or "") for event in logged_of(open_book, GenerationQueued))
    wait_until(  # an answer is there before its end is logged
        lambda: any(ANSWERED in (event.output or "") for event in logged_of(open_book, GenerationFinished)),
        "the answer in the log",
    )
