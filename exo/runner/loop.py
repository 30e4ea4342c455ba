"""A runner at work: takes its instance's tasks in order, feeds the engine, sends what comes out."""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from dataclasses import dataclass

from exo.bus.chunks import ChunkPublisher
from exo.bus.client import Bus
from exo.bus.inbox import send_report
from exo.bus.tasks import follow_tasks
from exo.domain.ids import TaskId
from exo.domain.messages.chunks import EndPiece, Piece, PrefillPiece
from exo.domain.messages.prefills import PrefillAsked
from exo.domain.messages.reports import GenerationEnded
from exo.domain.messages.tasks import CancelTask, ConnectTask, GenerateTask, Task
from exo.domain.runner_spec import RunnerSpec
from exo.domain.sampling import FinishReason, Timings, Usage
from exo.errors import Rejected, Retryable
from exo.log_setup import current_task
from exo.runner.elsewhere import PrefillElsewhere
from exo.runner.embedding import Embedding
from exo.runner.engine_thread import EngineThread
from exo.runner.engines.base import EngineOutput, Tokenizer, TokenOutput
from exo.runner.generation import Generation
from exo.runner.joining import joined
from exo.runner.prefilling import Prefilling
from exo.runner.preparing import Preparer, Prompt, Texts
from exo.runner.prompts import echoed, open_output

logger = logging.getLogger(__name__)

REPORT_PATIENCE = 3600.0
"""Seconds that a report of an ended generation is tried: nobody else knows what it says."""
ENDED_KEPT = 64
"""The last generations that ended, which are reported again when NATS is back: as many as have their chunks kept."""
SEEN_KEPT = 10_000
"""Tasks that are remembered, so that one that comes again is left alone."""


@dataclass(slots=True)
class _Opened:
    """A request on its way to the engine."""

    task: GenerateTask
    taken_at: float
    preparing: asyncio.Task[Prompt | Texts]
    wanted: bool = True


class RunnerLoop:
    """All generations of one runner. Lives on the event loop; only the engine has a thread.

    Of several ranks each reads the tasks and feeds its engine; rank 0 alone reads and sends what comes out.
    """

    def __init__(
        self, bus: Bus, spec: RunnerSpec, processes: tuple[str, ...], engine: EngineThread, tokenizer: Tokenizer
    ) -> None:
        """`processes`: of all ranks, this one's among them."""
        self._bus = bus
        self._spec = spec
        self._processes = processes
        self._speaks = spec.shard.rank == 0
        self._engine = engine
        self._tokenizer = tokenizer
        self._preparer = Preparer(bus, tokenizer)
        self._elsewhere = PrefillElsewhere(bus, engine, spec.shard.card.layers)
        self._prefilling = Prefilling(engine, spec.instance.slots, tokenizer.vocabulary_size)
        self._chunks = ChunkPublisher(bus)
        self._opening: dict[TaskId, _Opened] = {}
        self._last_start: asyncio.Task[None] | None = None
        self._live: dict[TaskId, Generation | Embedding] = {}
        self._seen: OrderedDict[TaskId, None] = OrderedDict()
        self._reports: set[asyncio.Task[None]] = set()
        self._ended: deque[GenerationEnded] = deque(maxlen=ENDED_KEPT)
        bus.on_reconnect(self._report_again)

    async def count(self, task_id: TaskId) -> int:
        """The tokens of a prompt that nobody wants answered. Raises Rejected where the model refuses it."""
        return await self._preparer.count(task_id)

    async def prefill(self, asked: PrefillAsked) -> int:
        """Compute a prompt for another instance; the port at which its state can be had. Raises Rejected."""
        return await self._prefilling.begin(asked)

    async def close(self) -> None:
        """Compute for no other instance any more."""
        await self._prefilling.close()

    async def take_tasks(self, after: int) -> None:
        """Take the tasks after a stream sequence, without end."""
        async with asyncio.TaskGroup() as starts:
            async for task in follow_tasks(self._bus, self._spec.instance.instance_id, after):
                await self._take(task, starts)

    async def _take(self, task: Task, starts: asyncio.TaskGroup) -> None:
        match task:
            case GenerateTask():
                if self._is_new(task):
                    self._last_start = starts.create_task(self._start(self._opened(task), self._last_start))
            case CancelTask():
                await self._cancel(task.task_id)
            case ConnectTask():
                logger.debug("left a task alone that was for the time before this process was ready")

    def _is_new(self, task: GenerateTask) -> bool:
        if task.processes != self._processes:
            logger.info("left task %s alone: it was given to an earlier process", task.task_id)
            return False
        if task.task_id in self._seen:
            logger.info("left task %s alone: it came before", task.task_id)
            return False
        self._seen[task.task_id] = None
        if len(self._seen) > SEEN_KEPT:
            self._seen.popitem(last=False)
        return True

    def _opened(self, task: GenerateTask) -> _Opened:
        """A long prompt or a large format takes seconds to read; neither others nor cancellations wait for that."""
        if self._speaks:
            self._chunks.begin(task.task_id, task.reply_to)
        taken_at = time.monotonic()
        opened = _Opened(task, taken_at, asyncio.create_task(self._prepare(task, taken_at)))
        self._opening[task.task_id] = opened
        return opened

    async def _prepare(self, task: GenerateTask, taken_at: float) -> Prompt | Texts:
        current_task.set(task.task_id)
        prepared = await self._preparer.prepare(task.task_id)
        if task.prefill is None or isinstance(prepared, Texts):
            return prepared

        async def send(piece: PrefillPiece) -> None:
            await self._chunks.send(task.task_id, piece)

        return await self._elsewhere.with_state(prepared, task.task_id, task.prefill, taken_at, send)

    async def _start(self, opened: _Opened, before: asyncio.Task[None] | None) -> None:
        """Hands a request over when it is prepared; with several ranks after the one before, as every rank does."""
        task = opened.task
        current_task.set(task.task_id)
        await asyncio.wait([opened.preparing])
        if before is not None and len(self._processes) > 1:
            await asyncio.wait([before])
        del self._opening[task.task_id]
        if not opened.wanted:
            await self._leave(opened, "cancelled")
            return
        try:
            prepared = opened.preparing.result()
            if self._speaks:
                self._live[task.task_id] = self._reader(opened, prepared)
        except Rejected as refusal:
            await self._leave(opened, "error", refusal)
            return
        match prepared:
            case Prompt():
                params = prepared.request.params
                self._engine.submit(task.task_id, prepared.tokens, params, prepared.guide, prepared.state)
            case Texts():
                self._engine.embed(task.task_id, prepared.tokens, prepared.request.params)

    async def _leave(self, opened: _Opened, reason: FinishReason, refusal: Rejected | None = None) -> None:
        """Ends a request that the engine never had."""
        self._engine.refuse(opened.task.task_id)
        if self._speaks:
            await self._end(opened.task, _unstarted(opened, reason, refusal), "")

    def _reader(self, opened: _Opened, prepared: Prompt | Texts) -> Generation | Embedding:
        """What makes chunks of the engine's outputs."""
        if isinstance(prepared, Texts):
            return Embedding(opened.task, opened.taken_at)
        pipeline = open_output(prepared.request, prepared.tokens, self._tokenizer)
        echo = echoed(prepared.request, prepared.tokens, self._tokenizer)
        return Generation(
            opened.task,
            pipeline,
            len(prepared.tokens),
            opened.taken_at,
            echo,
            attempt=prepared.attempt,
            held=prepared.held,
        )

    async def _cancel(self, task_id: TaskId) -> None:
        if self._speaks and (opened := self._opening.get(task_id)):
            opened.wanted = False
            opened.preparing.cancel()
        generation = self._live.pop(task_id, None)
        if generation is None:
            return
        self._engine.cancel([task_id])
        await self._finish(generation, generation.end("cancelled"))

    async def take_outputs(self, outputs: list[EngineOutput]) -> None:
        """Send what one step of the engine gave, or several together."""
        given: dict[TaskId, list[EngineOutput]] = {}
        for output in outputs:
            if self._prefilling.take(output):
                continue
            given.setdefault(output.task_id, []).append(output)
        stopped = [task_id for task_id, of_one in given.items() if await self._send_outputs(task_id, of_one)]
        if stopped:
            self._engine.cancel(stopped)

    async def _send_outputs(self, task_id: TaskId, outputs: list[EngineOutput]) -> bool:
        """Send what the engine gave for one request. Whether the engine would go on with one that is over."""
        generation = self._live.get(task_id)
        if generation is None:
            return False
        pieces: list[Piece] = []
        still_runs = False
        for output in outputs:
            pieces += generation.take(output)
            if pieces and isinstance(pieces[-1], EndPiece):
                still_runs = _still_runs(output)
                break
        for piece in joined(pieces):
            if not isinstance(piece, EndPiece):
                await self._chunks.send(task_id, piece)
            elif self._live.pop(task_id, None) is not None:
                await self._finish(generation, piece)
        return still_runs

    async def _finish(self, generation: Generation | Embedding, end: EndPiece) -> None:
        await self._end(generation.task, end, generation.said)

    async def _end(self, task: GenerateTask, end: EndPiece, text: str) -> None:
        end = end.replaced({"peak_memory_bytes": self._engine.peak_memory_bytes})
        await self._chunks.send(task.task_id, end)
        self._chunks.end(task.task_id)
        report = GenerationEnded(
            task_id=task.task_id,
            process=self._spec.process,
            finish_reason=end.finish_reason,
            usage=end.usage,
            timings=end.timings,
            code=end.code,
            error=end.error,
            output=text if task.log_output else None,
            prefill=end.prefill,
        )
        self._ended.append(report)
        self._send(report)

    async def _report_again(self) -> None:
        """The server may have died with what it had confirmed. A report of what is known to be over changes nothing."""
        for report in self._ended:
            self._send(report)

    def _send(self, report: GenerationEnded) -> None:
        sending = asyncio.create_task(self._report(report))
        self._reports.add(sending)
        sending.add_done_callback(self._reports.discard)

    async def _report(self, report: GenerationEnded) -> None:
        current_task.set(report.task_id)
        try:
            await send_report(self._bus, self._spec.shard.runner_id, report, REPORT_PATIENCE)
        except Retryable as error:
            logger.error("the end of %s could not be reported: %s", report.task_id, error)


def _unstarted(opened: _Opened, reason: FinishReason, refusal: Rejected | None) -> EndPiece:
    return EndPiece(
        finish_reason=reason,
        usage=Usage(),
        timings=Timings(wait=time.monotonic() - opened.taken_at),
        code=refusal.code if refusal else "",
        error=refusal.reason if refusal else "",
        param=refusal.param if refusal else None,
    )


def _still_runs(output: EngineOutput) -> bool:
    """Whether the engine goes on with a request after this output, as far as it knows."""
    return isinstance(output, TokenOutput) and output.finish_reason is None
