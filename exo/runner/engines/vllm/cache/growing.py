"""Blocks with memory behind them, more before a step that needs more, fewer when nothing is to do."""

import time
from collections.abc import Callable

from vllm import LLMEngine
from vllm.v1.engine.core_client import InprocClient
from vllm.v1.request import Request

from exo.domain.ids import TaskId
from exo.errors import Fatal
from exo.runner.engines.admission import MEMORY_PATIENCE, MEMORY_PAUSE
from exo.runner.engines.base import FailedOutput
from exo.runner.engines.vllm.cache.policy import growth, kept, start
from exo.runner.engines.vllm.cache.scheduler import GrowingScheduler

FreeBytes = Callable[[], int]
Clock = Callable[[], float]


class GrowingCache:
    """Of a vLLM engine that was made with our scheduler and workers. Belongs to the engine's thread."""

    def __init__(self, engine: LLMEngine, free_bytes: FreeBytes | None = None, clock: Clock = time.monotonic) -> None:
        """It grows to its first size. `free_bytes`: the least that any rank's memory has free, by default as they say.

        Raises Fatal where the engine is not such a one.
        """
        self._engine = engine
        self._scheduler = _scheduler(engine)
        self._block_bytes = self._scheduler.block_bytes
        self._free_bytes = free_bytes or self._least_free
        self._clock = clock
        self._short = 0
        self._peak = self._scheduler.granted
        self._worked_at = clock()
        self._stuck: tuple[str, float] | None = None
        """The request that lacks memory, and since when."""
        self._start = start(self._scheduler.limit, self._free_bytes(), self._block_bytes)
        self._grow(self._start - self._scheduler.granted)

    @property
    def bytes(self) -> int:
        """Memory that it has, on one rank."""
        return self._scheduler.granted * self._block_bytes

    @property
    def peak_bytes(self) -> int:
        """The most memory that it had at once, on one rank."""
        return self._peak * self._block_bytes

    def make_room(self) -> None:
        """Before a step: grows where it needs more blocks than are empty, as far as the limit and memory allow."""
        self._worked_at = self._clock()
        self._short = self._scheduler.blocks_short()
        if self._short > 0:
            self._short -= self._grow(self._short)

    def starved(self) -> list[FailedOutput]:
        """After a step that gave nothing: waits a moment if that is for want of memory. The end of the request at the
        head once it has waited too long; it is for the caller to drop it."""
        request = self._scheduler.stuck if self._short > 0 else None
        if request is None:
            self._stuck = None
            return []
        if self._stuck is None or self._stuck[0] != request.request_id:
            self._stuck = (request.request_id, self._clock())
        if self._clock() - self._stuck[1] >= MEMORY_PATIENCE:
            return [self._failure(request)]
        time.sleep(MEMORY_PAUSE)
        return []

    def shrink(self) -> None:
        """Between requests: gives back what is not used."""
        quiet = self._clock() - self._worked_at
        stays = kept(self._start, self._scheduler.held, self._scheduler.used, quiet, self._free_bytes())
        if stays < self._scheduler.granted:
            self._scheduler.take_back(stays)
            self._release_from(stays)

    def _grow(self, short: int) -> int:
        """Tries to get so many blocks, and says how many it got."""
        present, limit = self._scheduler.granted, self._scheduler.limit
        if present >= limit or short <= 0:
            return 0
        more = growth(present, short, limit, self._free_bytes(), self._block_bytes)
        if more == 0:
            return 0
        if not all(self._engine.collective_rpc("commit_blocks", args=(present, present + more))):
            self._release_from(present)
            return 0
        self._scheduler.grant(more)
        self._peak = max(self._peak, self._scheduler.granted)
        return more

    def _release_from(self, first: int) -> None:
        self._engine.collective_rpc("release_blocks", args=(first, self._scheduler.limit))

    def _least_free(self) -> int:
        free: list[int] = self._engine.collective_rpc("free_memory")
        return min(free)

    def _failure(self, request: Request) -> FailedOutput:
        task_id = TaskId(self._engine.output_processor.request_states[request.request_id].external_req_id)
        return FailedOutput(
            task_id,
            "insufficient_memory",
            f"the request's keys and values take {self._scheduler.size_of(request)} bytes, and there are {self.bytes}: "
            f"the system, with {self._free_bytes()} bytes free, had no more to give in {MEMORY_PATIENCE:.0f} s; "
            "ask again when other programs have ended, or for fewer tokens",
        )


def _scheduler(engine: LLMEngine) -> GrowingScheduler:
    client = engine.engine_core
    if isinstance(client, InprocClient) and isinstance(client.engine_core.scheduler, GrowingScheduler):
        return client.engine_core.scheduler
    raise Fatal("vLLM's engine must run in the runner's process: unset VLLM_ENABLE_V1_MULTIPROCESSING")
