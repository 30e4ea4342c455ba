"""The process that tries formats, as the runner has it."""

import asyncio
import contextlib
import os
import signal
from itertools import count
from typing import Self

from exo.errors import Retryable
from exo.process import module_command
from exo.runner.structured.messages import TrialRequest, TrialSource, TrialVerdict


class TrialProcess:
    """Answers until it ends. It does not outlive this process, however that ends."""

    __slots__ = ("_child", "_numbers", "_open", "_reading")

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._numbers = count()
        self._open: dict[int, asyncio.Future[TrialVerdict]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, source: TrialSource) -> Self:
        """It has its vocabulary after a second or so, and takes requests before."""
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *module_command("exo.runner.structured.trial"), stdin=pipe, stdout=pipe, start_new_session=True
        )
        process = cls(child)
        await process._write(source.model_dump_json().encode())
        return process

    @property
    def has_ended(self) -> bool:
        """Whether it takes nothing more. What it still tries may be answered."""
        return self._child.returncode is not None or self._reading.done()

    async def ask(self, asked: TrialRequest) -> TrialVerdict:
        """Its answer. Raises Retryable where it ends before."""
        number = next(self._numbers)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            await self._write(b"%d " % number + asked.model_dump_json().encode())
            if self.has_ended:
                raise _gone()
            return await answer
        finally:
            del self._open[number]

    async def end(self) -> None:
        """End it with all that it tries, and wait for that."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        await self._child.wait()
        await self._reading

    async def _write(self, line: bytes) -> None:
        assert self._child.stdin is not None  # asked for at its start
        with contextlib.suppress(OSError, RuntimeError):  # it has ended, which the reading sees
            self._child.stdin.write(line + b"\n")
            await self._child.stdin.drain()

    async def _read(self) -> None:
        assert self._child.stdout is not None  # asked for at its start
        async for line in self._child.stdout:
            verdict = TrialVerdict.model_validate_json(line)
            answer = self._open.get(verdict.number)
            if answer is not None and not answer.done():
                answer.set_result(verdict)
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(_gone())


def _gone() -> Retryable:
    return Retryable("the process that tries formats has ended")
