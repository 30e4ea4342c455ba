"""The engine's thread: what ends it."""

import asyncio
from pathlib import Path

import pytest

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.runner.engine_thread import EngineThread
from exo.runner.engines.base import EngineOutput
from exo.runner.engines.scripted import ScriptedEngine
from tests import builders

SHARD = builders.whole(builders.card(family="scripted", context=200))


async def thread_of(folder: Path, message: bytes) -> EngineThread:
    """A thread that has been given a request."""
    thread = EngineThread(ScriptedEngine(), slots=1)
    thread.start()
    await thread.call(lambda engine: engine.load(SHARD, folder, lambda done, total: None))
    thread.submit(TaskId("a"), list(message), SamplingParams())
    return thread


async def test_what_cannot_be_taken_ends_it_with_that_error(tmp_path: Path) -> None:
    """Nobody would notice otherwise: the process lives on, and every request waits."""
    thread = await thread_of(tmp_path, b"one")

    async def take(outputs: list[EngineOutput]) -> None:
        raise ValueError("cannot be taken")

    async with asyncio.timeout(10):
        with pytest.raises(ValueError, match="cannot be taken"):
            await thread.run(take)
        while thread.in_flight:
            await thread.call(lambda engine: None)


async def test_what_breaks_the_engine_ends_it_with_that_error(tmp_path: Path) -> None:
    thread = await thread_of(tmp_path, b'{"tokens": ["a"], "fault": {"kind": "out_of_memory", "after": 1}}')
    taken: list[EngineOutput] = []

    async def take(outputs: list[EngineOutput]) -> None:
        taken.extend(outputs)

    async with asyncio.timeout(10):
        with pytest.raises(MemoryError):
            await thread.run(take)
