"""`exo nats` keeps its server: after a kill, and after a disk that was full."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from exo.bus.client import connect
from exo.bus.inbox import send_command
from exo.domain.ids import ModelId
from exo.domain.messages.commands import PlaceInstance
from exo.errors import Retryable
from tests.cluster.chats import Chat, script
from tests.cluster.history import assert_sound
from tests.stack import EXO, Stack, alive, wait_until

DISK = 100 * 2**20
"""Bytes of the small disk; NATS does not start with less than 64 MB."""
ALONE = ("unshare", "--user", "--map-root-user", "--mount")
"""A process with a view of the file system of its own, in which it may mount."""


def server_of(stack: Stack) -> psutil.Process:
    (child,) = psutil.Process(stack.processes["nats"].pid).children()
    return child


def test_a_server_that_is_killed_is_started_again_while_requests_stream(stack: Stack) -> None:
    running = Chat(stack, script(30, 0.05)).wait_text(3)
    killed = server_of(stack)
    os.kill(killed.pid, signal.SIGKILL)
    assert running.wait().outcome == "complete"
    assert server_of(stack).pid != killed.pid
    assert "starting it again" in stack.output("nats")
    assert_sound(stack)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_the_server_ends_with_its_process_however_that_ends(stack: Stack) -> None:
    server = server_of(stack)
    stack.kill("nats")
    wait_until(lambda: not alive(server.pid), "the server's end", 5)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Stack]:
    """A node whose NATS has a small disk of its own."""
    node = Stack(tmp_path / "home")
    (node.home / "nats").mkdir(parents=True)
    mount = f"mount -t tmpfs -o size={DISK} tmpfs {node.home / 'nats'}"
    with (node.home / "nats.out").open("wb") as output:
        node.processes["nats"] = subprocess.Popen(
            [*ALONE, "sh", "-c", f'{mount} && exec "$0" -c "$1" nats', sys.executable, EXO],
            env=node.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        node.start(["master"])
        wait_until(lambda: "leading, epoch 1" in node.output("master"), "the election")
        yield node
    finally:
        node.stop()


@pytest.mark.skipif(not can_mount(), reason="this system lets nobody mount a small disk")
def test_a_full_disk_is_said_and_left_behind_when_there_is_room(small_disk: Stack) -> None:
    process = small_disk.processes["nats"]
    filler = Path(f"/proc/{process.pid}/root{small_disk.home}/nats/filler")
    with filler.open("wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"0" * 2**20)
            file.flush()

    async def taken(patience: float) -> bool:
        bus = await connect(small_disk.nats_url, "home", "tester")
        try:
            await send_command(bus, "tester", PlaceInstance(model_id=ModelId("maker/unknown")), patience)
        except Retryable:
            return False
        finally:
            await bus.close()
        return True

    def is_said() -> bool:
        asyncio.run(taken(0))
        return "is full: free some space" in small_disk.output("nats")

    wait_until(is_said, "the line that says so", 30)
    filler.unlink()
    wait_until(lambda: asyncio.run(taken(1)), "a command to be taken again", 30)
    assert process.poll() is None
    assert "there is room on the disk again" in small_disk.output("nats")
