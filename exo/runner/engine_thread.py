"""The engine's own thread: arrays and streams belong to the thread that made them, and a step blocks."""

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.runner.engines.base import Engine, EngineOutput
from exo.runner.kv.form import PromptState, Sink
from exo.runner.step_border import StepBorder
from exo.runner.structured.guide import Guide

T = TypeVar("T")

REST = 5.0
"""Seconds without a call after which an idle engine is told so, again and again."""
OUTSTANDING_MOST = 64
"""Steps whose outputs wait to be sent; the engine pauses beyond."""
BEHIND = 8
"""So many steps that wait are sent together: whoever sends them is slower than the engine, and sends less so."""


class EngineThread:
    """Steps an engine for as long as it has work, and calls it in between for whoever asks."""

    def __init__(self, engine: Engine, slots: int) -> None:
        """At most `slots` requests run side by side; more wait."""
        self._engine = engine
        self._border = StepBorder(engine, slots)
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(OUTSTANDING_MOST)
        self._stepped: asyncio.Queue[list[EngineOutput]] = asyncio.Queue()
        self._step_began: float | None = None
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    @property
    def step_seconds(self) -> float:
        """How long the current step has taken, with the wait for other ranks; 0 between steps."""
        began = self._step_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def in_flight(self) -> int:
        """Requests in the engine."""
        return self._engine.in_flight

    @property
    def peak_memory_bytes(self) -> int:
        """As the engine has it."""
        return self._engine.peak_memory_bytes

    def start(self) -> None:
        """Begin to take calls."""
        self._thread.start()

    async def run(self, take: Callable[[list[EngineOutput]], Awaitable[None]]) -> None:
        """Await `take` with what each step gives, in order, without end; with what several gave where it falls behind.

        Raises what broke the engine, or `take`.
        """
        sending = asyncio.create_task(self._send(take))
        try:
            await asyncio.wait({sending, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
        await (self._broken if self._broken.done() else sending)

    async def call(self, function: Callable[[Engine], T]) -> T:
        """What `function` returns, or raises, called between two steps."""
        result: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                value = function(self._engine)
            except Exception as error:
                self._loop.call_soon_threadsafe(_fail, result, error)
            else:
                self._loop.call_soon_threadsafe(_succeed, result, value)

        self._calls.put(run)
        return await result

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        guide: Guide | None = None,
        state: PromptState | None = None,
    ) -> None:
        """Hand a request over at the next step. Where the engine refuses it, a FailedOutput says why."""
        self._calls.put(lambda: self._border.tell(task_id, prompt, params, guide, state))

    def prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """As `submit`, of a prompt whose state alone is wanted. `sink` is called in the engine's thread."""
        self._calls.put(lambda: self._border.tell_prefill(task_id, prompt, sink))

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """As `submit`, of texts that are to become vectors."""
        self._calls.put(lambda: self._border.tell_texts(task_id, inputs, params))

    def refuse(self, task_id: TaskId) -> None:
        """Have the other ranks leave a request alone that this one could not read, or that was cancelled before."""
        self._calls.put(lambda: self._border.refuse(task_id))

    def cancel(self, task_ids: Sequence[TaskId]) -> None:
        """Have requests dropped at the next step."""
        self._calls.put(lambda: self._border.end(task_ids))

    async def _send(self, take: Callable[[list[EngineOutput]], Awaitable[None]]) -> None:
        while True:
            steps = [await self._stepped.get()]
            if self._stepped.qsize() >= BEHIND:
                steps += [self._stepped.get_nowait() for _ in range(self._stepped.qsize())]
            try:
                await take([output for outputs in steps for output in outputs])
            finally:
                for _ in steps:
                    self._room.release()

    def _work(self) -> None:
        try:
            while True:
                self._make_calls()
                if not self._border.idle:
                    self._step()
        except BaseException as error:
            self._loop.call_soon_threadsafe(_fail, self._broken, error)

    def _make_calls(self) -> None:
        if self._border.idle:
            try:
                self._calls.get(timeout=REST)()
            except queue.Empty:
                self._engine.rest()
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            call()

    def _step(self) -> None:
        self._step_began = time.monotonic()
        outputs = self._border.cross()
        if self._engine.in_flight:
            given = self._engine.step()
            self._border.note(given)
            outputs += given
        self._step_began = None
        if outputs:
            self._emit(outputs)

    def _emit(self, outputs: list[EngineOutput]) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._stepped.put_nowait, outputs)


def _succeed(result: asyncio.Future[T], value: T) -> None:
    if not result.done():
        result.set_result(value)


def _fail(result: asyncio.Future[T], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)
