"""What a node's log says afterwards, and what must be true of it whatever happened."""

import asyncio
import json
from collections import Counter
from typing import TypeVar

import httpx

from exo.domain.messages.events import (
    Event,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
)
from exo.log.store import LogStore
from tests.cluster.chats import Chat
from tests.stack import Stack, wait_until

E = TypeVar("E")


def logged(stack: Stack) -> list[Event]:
    """All events in the log's file, in order."""

    async def read() -> list[Event]:
        store = await LogStore.open(stack.home / "log" / "exo.sqlite3", read_only=True)
        try:
            return [recorded.entry.event async for recorded in store.stream()]
        finally:
            await store.close()

    return asyncio.run(read())


def logged_of(stack: Stack, kind: type[E]) -> list[E]:
    """All events of one type in the log's file, in order."""
    return [event for event in logged(stack) if isinstance(event, kind)]


def finish_of(stack: Stack, task_id: str) -> GenerationFinished | None:
    """How a generation ended, if it has."""
    ends = [event for event in logged_of(stack, GenerationFinished) if event.task_id == task_id]
    return ends[0] if ends else None


def state(stack: Stack) -> dict:
    """What GET /state says."""
    return httpx.get(f"{stack.url}/state", timeout=10).json()


def assert_sound(stack: Stack, model: str = "scripted") -> None:
    """The log is whole, says each thing once, gives the State that the API shows, and the next chat is answered."""
    wait_until(lambda: not state(stack)["generations"] and _all_ended(stack), "the last generation's end", 20)
    _assert_once(logged(stack))
    verified = stack.cli("log", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    wait_until(lambda: _replays_to_state(stack), "a replay that equals /state")
    stack.wait_ready()
    answer = Chat(stack, "still there?", model=model, max_tokens=40).wait()
    assert answer.outcome == "complete" and answer.text, answer


def _all_ended(stack: Stack) -> bool:
    """By the log, which an API that just found NATS again may be behind."""
    return {one.task_id for one in logged_of(stack, GenerationQueued)} == {
        one.task_id for one in logged_of(stack, GenerationFinished)
    }


def _assert_once(events: list[Event]) -> None:
    for kind in (GenerationQueued, GenerationDispatched, GenerationFinished):
        counts = Counter(event.task_id for event in events if isinstance(event, kind))
        assert all(count == 1 for count in counts.values()), f"{kind.__name__} twice: {counts.most_common(3)}"
    queued = {event.task_id for event in events if isinstance(event, GenerationQueued)}
    finished = {event.task_id for event in events if isinstance(event, GenerationFinished)}
    assert queued == finished


def _replays_to_state(stack: Stack) -> bool:
    shown = httpx.get(f"{stack.url}/state", timeout=10).text
    replayed = stack.cli("log", "replay", "--json")
    assert replayed.returncode == 0, replayed.stderr
    return json.loads(replayed.stdout) == json.loads(shown)
