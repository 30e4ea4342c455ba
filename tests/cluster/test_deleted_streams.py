"""Somebody deletes, or NATS loses, a stream while the node runs: within seconds requests are answered again."""

import asyncio
import shutil
from collections.abc import Sequence

import pytest

from exo.bus.client import connect
from tests.cluster.chats import Chat
from tests.cluster.history import assert_sound, state
from tests.stack import Stack, wait_until

STREAMS = ("INBOX", "EVENTS", "TASKS", "REQUESTS", "CHUNKS", "KV_LEASE", "KV_GAUGES", "OBJ_BLOBS")


async def deleted(stack: Stack, name: str) -> None:
    bus = await connect(stack.nats_url, "home", "test")
    try:
        await bus.js.delete_stream(name)
    finally:
        await bus.close()


async def published(stack: Stack, subject: str, payloads: Sequence[bytes]) -> None:
    bus = await connect(stack.nats_url, "home", "test")
    try:
        for payload in payloads:
            await bus.js.publish(subject, payload)
    finally:
        await bus.close()


def wait_answered(stack: Stack) -> None:
    """Return when a request is answered; whatever is asked before that ends too, in an answer or an error."""
    wait_until(lambda: Chat(stack, "hello").wait(20).text == "hello", "an answer", 20)


@pytest.mark.parametrize("name", STREAMS)
def test_a_deleted_stream_is_made_anew(shared_stack: Stack, name: str) -> None:
    wait_answered(shared_stack)
    asyncio.run(deleted(shared_stack, name))
    wait_answered(shared_stack)
    wait_until(shared_stack.is_ready, "the node to be ready")
    assert_sound(shared_stack)


def test_a_server_that_lost_its_whole_store_serves_again(shared_stack: Stack) -> None:
    for _ in range(3):
        wait_answered(shared_stack)
    shutil.rmtree(shared_stack.home / "nats" / "jetstream")
    shared_stack.kill("nats")
    shared_stack.start(["nats"])
    wait_answered(shared_stack)
    assert_sound(shared_stack)


JUNK = (
    b"",
    b"{",
    b'{"type": "GenerateTask"}',
    b'{"type": "GenerateTask", "version": 9, "task_id": "q", "reply_to": "r", "processes": ["p"]}',
    b'{"type": "GenerateTask", "task_id": "q", "reply_to": "r", "processes": []}',
)


def test_tasks_that_nobody_can_read_are_left_out(shared_stack: Stack) -> None:
    running = Chat(shared_stack, '{"tokens": ["a ", "b ", "c "], "pace": 0.3}').wait_text(1)
    (instance,) = state(shared_stack)["instances"]
    asyncio.run(published(shared_stack, f"exo.home.task.{instance}", JUNK))
    assert running.wait().text == "a b c "
    assert Chat(shared_stack, "hello").wait().text == "hello"
    assert "left an unreadable task" in shared_stack.output("worker")
