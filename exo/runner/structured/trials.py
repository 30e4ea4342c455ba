"""Which formats this process may compile: those that were seen to compile in another one."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable

from exo.domain.constraint import JsonObject
from exo.domain.messages.requests import GenerationRequest
from exo.errors import Rejected, Retryable
from exo.models.output_format import OutputFormat
from exo.runner.structured.messages import TrialRequest, TrialSource, TrialVerdict, trial_request
from exo.runner.structured.tools import PARAM
from exo.runner.structured.trial_process import TrialProcess
from exo.runner.structured.vocabulary import VocabularySource

AT_ONCE = 2
"""Trials; most take milliseconds."""
TRIAL_MOST = 10.0
"""Seconds that one may take, and that it may wait for its turn."""
MEMORY_MOST = 1 << 30
"""Bytes of address space that one may have; a vocabulary of 150,000 tokens is a quarter of it."""
START_MOST = 30.0
"""Seconds that the process may take to begin, on a busy machine."""
KNOWN_MOST = 1000
"""Formats whose verdict is remembered."""


class Trials:
    """Has each format tried once, before it is compiled here. Belongs to one event loop.

    The process for it is started at the first format, and anew should it end. JSON objects of any kind need none: their
    grammar is always the same.
    """

    def __init__(
        self, source: Callable[[], VocabularySource | None], seconds: float = TRIAL_MOST, at_once: int = AT_ONCE
    ) -> None:
        """`source` is called in a thread; None where formats are not compiled at all."""
        self._source = source
        self._seconds = seconds
        self._free = asyncio.Semaphore(at_once)
        self._known: OrderedDict[bytes, TrialVerdict] = OrderedDict()
        self._process: TrialProcess | None = None
        self._starting = asyncio.Lock()
        self._running: set[asyncio.Task[TrialVerdict | None]] = set()

    async def check(self, request: GenerationRequest, form: OutputFormat) -> None:
        """Return where the format may be compiled here.

        Raises Rejected, about the API's parameter: what compiling says; `invalid_response_format` where it takes too
        much; `unavailable` where others take long, so that its turn does not come.
        """
        constraint = request.params.constraint
        if request.tool_choice != "required" and isinstance(constraint, JsonObject):
            return
        param = PARAM if constraint is None else constraint.param
        asked = trial_request(request, form)
        key = hashlib.sha256(asked.model_dump_json().encode()).digest()
        verdict = self._known.get(key)
        if verdict is None:
            await self._turn(param)
            verdict = await self._tried(asked, key, param)
        if verdict is not None and not verdict.fits:
            raise self._refusal(verdict, param)

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            await self._process.end()

    async def _turn(self, param: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise Rejected(
                f"{param}: formats of other requests are being compiled, which takes long: try again later",
                code="unavailable",
                param=param,
            ) from error

    async def _tried(self, asked: TrialRequest, key: bytes, param: str) -> TrialVerdict | None:
        """A client that leaves does not end a trial: it keeps its place, and what it says is remembered."""
        trying = asyncio.create_task(self._ask(asked, key))
        self._running.add(trying)
        trying.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(trying)
        except Retryable as error:
            raise Rejected(f"{param}: {error}: try again", code="unavailable", param=param) from error

    async def _ask(self, asked: TrialRequest, key: bytes) -> TrialVerdict | None:
        try:
            async with asyncio.timeout(START_MOST + self._seconds):
                process = await self._started()
                if process is None:
                    return None
                verdict = await process.ask(asked)
        except (TimeoutError, OSError) as error:
            await self.close()
            raise Retryable("the process that tries formats cannot be reached") from error
        finally:
            self._free.release()
        self._known[key] = verdict
        if len(self._known) > KNOWN_MOST:
            self._known.popitem(last=False)
        return verdict

    async def _started(self) -> TrialProcess | None:
        async with self._starting:
            if self._process is None or self._process.has_ended:
                vocabulary = await asyncio.to_thread(self._source)
                if vocabulary is None:
                    return None
                source = TrialSource(vocabulary=vocabulary, seconds=self._seconds, memory_bytes=MEMORY_MOST)
                self._process = await TrialProcess.start(source)
            return self._process

    def _refusal(self, verdict: TrialVerdict, param: str) -> Rejected:
        if verdict.reason:
            return Rejected(verdict.reason, code=verdict.code, param=verdict.param)
        reason = f"it cannot be compiled within {self._seconds:g} s and {MEMORY_MOST >> 20} MiB"
        return Rejected(f"{param}: this is too complex: {reason}", code="invalid_response_format", param=param)
