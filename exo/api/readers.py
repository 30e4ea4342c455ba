"""Endless streams that are no generations: read with signs of life, and ended together with the process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Readers:
    """The open ones."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[object]] = set()
        self._closing = False

    async def read(self, source: AsyncGenerator[T], silence: float) -> AsyncGenerator[T | None]:
        """What comes from `source`, and None after each `silence`, seconds, until the process ends."""
        task = self._next(source)
        try:
            while not self._closing:
                done, _ = await asyncio.wait({task}, timeout=silence)
                if not done:
                    yield None
                    continue
                if task.cancelled():
                    return
                yield task.result()
                task = self._next(source)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await task
            await source.aclose()

    def close(self) -> None:
        """End all of them."""
        self._closing = True
        for task in self._waiting:
            task.cancel()

    def _next(self, source: AsyncGenerator[T]) -> "asyncio.Task[T]":
        async def following() -> T:
            return await anext(source)

        task = asyncio.create_task(following())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return task
