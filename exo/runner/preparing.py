"""Requests on their way to the engine: the payload read, made tokens of, and what holds the answer made ready."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from exo.bus.client import Bus
from exo.bus.requests import get_payload
from exo.domain.ids import TaskId
from exo.domain.messages.requests import EmbeddingRequest, GenerationRequest, Payload
from exo.domain.prefill import PrefillAttempt
from exo.errors import Rejected, Retryable
from exo.runner.engines.base import Tokenizer
from exo.runner.kv.form import PromptState
from exo.runner.prompts import encode, encode_inputs, form_of
from exo.runner.structured.guide import Guide
from exo.runner.structured.trials import Trials

logger = logging.getLogger(__name__)

REQUEST_PATIENCE = 30.0
"""Seconds that the text of a request is tried, while NATS stays away."""
REQUEST_PAUSE = 0.5
"""Seconds between two tries."""
STORED_WITHIN = 5.0
"""Seconds that a payload may come after its task: a small one is not waited for, and a busy disk takes its time."""
STORED_PAUSE = 0.02
COMPILES_AT_ONCE = 2
"""Of formats. Most take milliseconds."""
SHORT_PROMPT = 4096
"""Characters that are turned into tokens within a millisecond or two."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be continued, ready for the engine."""

    request: GenerationRequest
    tokens: list[int]
    guide: Guide | None
    state: PromptState | None = None
    """Of its first tokens, where another instance computed them."""
    held: int = 0
    """Tokens that the engine here held when it was asked for."""
    attempt: PrefillAttempt | None = None
    """What came of asking another instance."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What is to become vectors, ready for the engine."""

    request: EmbeddingRequest
    tokens: list[list[int]]
    """Of each text."""


class Preparer:
    """Prepares requests for one model. What takes long does so in threads, and holds up no others."""

    def __init__(self, bus: Bus, tokenizer: Tokenizer, stored_within: float = STORED_WITHIN) -> None:
        self._bus = bus
        self._tokenizer = tokenizer
        self._stored_within = stored_within
        self._trials = Trials(tokenizer.vocabulary_source)
        self._compiles = ThreadPoolExecutor(COMPILES_AT_ONCE, "compile")

    async def prepare(self, task_id: TaskId) -> Prompt | Texts:
        """The request of a task. Raises Rejected where it is gone, or the model refuses it."""
        request = await self._payload(task_id)
        if isinstance(request, EmbeddingRequest):
            return Texts(request, await asyncio.to_thread(encode_inputs, request, self._tokenizer))
        tokens = await self._encode(request)
        return Prompt(request, tokens, await self._guide(request, tokens))

    async def count(self, task_id: TaskId) -> int:
        """The tokens of a prompt that nobody wants answered. Raises Rejected as `prepare`."""
        request = await self._payload(task_id)
        if isinstance(request, EmbeddingRequest):
            raise Rejected("this is no prompt, but texts that are to become vectors")
        return len(await self._encode(request))

    async def _encode(self, request: GenerationRequest) -> list[int]:
        """A long prompt takes seconds; for a short one a thread is a detour."""
        if request.characters < SHORT_PROMPT:
            return encode(request, self._tokenizer)
        return await asyncio.to_thread(encode, request, self._tokenizer)

    async def _guide(self, request: GenerationRequest, prompt: list[int]) -> Guide | None:
        """What holds the answer to what is demanded. Only what was tried is compiled here: it cannot be stopped."""
        if request.params.constraint is None and request.tool_choice != "required":
            return None
        await self._trials.check(request, form_of(request, prompt, self._tokenizer))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._compiles, self._tokenizer.guide, request, prompt)

    async def _payload(self, task_id: TaskId) -> Payload:
        begun = time.monotonic()
        while True:
            try:
                request = await get_payload(self._bus, task_id)
            except Retryable as error:
                if time.monotonic() - begun > REQUEST_PATIENCE:
                    raise Rejected(str(error), code="unavailable") from error
                logger.info("%s; trying again", error)
                await asyncio.sleep(REQUEST_PAUSE)
                continue
            if request is not None:
                return request
            if time.monotonic() - begun > self._stored_within:
                raise Rejected("the request's text is gone: it is kept for one hour", code="request_expired")
            await asyncio.sleep(STORED_PAUSE)
