"""The KV state of a prompt, fetched from the instance that prefills for this one. Nothing is lost where that fails: the
engine here then computes the prompt."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from exo.bus.client import Bus
from exo.bus.prefills import ask_prefill
from exo.domain.ids import TaskId
from exo.domain.messages.chunks import PrefillPiece
from exo.domain.messages.prefills import PrefillAsked
from exo.domain.prefill import PrefillAttempt, PrefillSource
from exo.errors import ExoError, Rejected, Retryable
from exo.node.container import available_memory
from exo.runner.engine_thread import EngineThread
from exo.runner.kv.fetching import fetch
from exo.runner.kv.form import AttentionState, Piece, PromptState
from exo.runner.kv.keys import new_key
from exo.runner.preparing import Prompt

logger = logging.getLogger(__name__)

MISSING_LEAST = 256
"""Tokens that are not in the prefix cache below which nobody is asked: an engine computes so few in about one slice of
its prefill, and a short prompt would be held up by the long ones that the other instance is there for."""
ANSWER_PATIENCE = 5.0
"""Seconds for the other runner to answer. It does before it computes anything."""
PIECE_PATIENCE = 30.0
"""Seconds in which nothing comes: the other runner says now and then that it is there, however busy its engine is."""
STATE_PATIENCE = 600.0
"""Seconds for all of it."""
MEMORY_SHARE = 3
"""Of the host's free memory, the part that states on their way may fill is one of so many: as much again is for what
the engine makes of them, and the rest is for what runs."""
PROGRESS_PAUSE = 0.25
"""Seconds between two chunks that say how far it is: about a slice of own prefill."""

Send = Callable[[PrefillPiece], Awaitable[None]]


class PrefillElsewhere:
    """Asks for states of prompts. Lives on the event loop."""

    def __init__(self, bus: Bus, engine: EngineThread, layers: int) -> None:
        """`layers`: of the model."""
        self._bus = bus
        self._engine = engine
        self._layers = layers
        self._under_way = 0
        """States that are being fetched."""

    async def with_state(
        self, prompt: Prompt, task_id: TaskId, source: PrefillSource, taken_at: float, send: Send
    ) -> Prompt:
        """The prompt with its state, where it is long enough and the state came, and with what became of asking.

        `taken_at`: when the task was taken, monotonic; `send` gets how far it is, now and then.
        """
        wanted = len(prompt.tokens) - 1
        if wanted < MISSING_LEAST:
            return prompt  # without a word to the engine, which answers between two steps only
        refusal, held = await self._engine.call(lambda engine: (engine.exchanges, engine.held(prompt.tokens)))
        if wanted - held < MISSING_LEAST:
            return prompt
        asked_at = time.monotonic()
        attempt = PrefillAttempt(instance_id=source.instance, asked_after=asked_at - taken_at)
        try:
            async with asyncio.timeout(STATE_PATIENCE):
                if refusal:
                    raise Rejected(f"the engine here takes no state: {refusal}")
                state = await self._state(prompt.tokens, task_id, source, send)
        except (ExoError, TimeoutError) as error:
            reason = str(error) or f"its state did not come within {STATE_PATIENCE:.0f} s"
            logger.warning("instance %s did not prefill %s, so this one does: %s", source.instance, task_id, reason)
            return replace(prompt, attempt=_ended(attempt, asked_at, error=reason))
        return replace(prompt, state=state, held=held, attempt=_ended(attempt, asked_at, tokens=state.tokens))

    async def _state(self, tokens: list[int], task_id: TaskId, source: PrefillSource, send: Send) -> PromptState:
        """Raises Rejected or Retryable with the reason where it does not come."""
        asked = PrefillAsked(task_id=task_id, key=new_key(), tokens=tuple(tokens))
        port = await ask_prefill(self._bus, source.instance, asked, ANSWER_PATIENCE)
        progress = _Progress(len(tokens), self._layers, send)
        self._under_way += 1
        try:
            most = available_memory() // MEMORY_SHARE // self._under_way
            state = await fetch(source.host, port, asked.key, PIECE_PATIENCE, most, progress.take)
        finally:
            self._under_way -= 1
        if state.tokens != len(tokens) - 1:
            raise Retryable(f"its state is of {state.tokens} tokens, and {len(tokens) - 1} were asked for")
        return state


@dataclass(slots=True)
class _Progress:
    """How much of a prompt is there, by the pieces that came."""

    total: int
    layers: int
    send: Send
    _came: int = 0
    """Tokens, of all layers together."""
    _said: float = field(default_factory=time.monotonic)

    async def take(self, piece: Piece) -> None:
        """One more piece."""
        if not isinstance(piece.state, AttentionState):
            return
        self._came += piece.state.tokens
        now = time.monotonic()
        if now - self._said >= PROGRESS_PAUSE:
            self._said = now
            done = min(self.total - 1, self._came // max(1, self.layers))
            await self.send(PrefillPiece(done=done, total=self.total))


def _ended(attempt: PrefillAttempt, asked_at: float, *, tokens: int = 0, error: str = "") -> PrefillAttempt:
    return attempt.replaced({"seconds": time.monotonic() - asked_at, "tokens": tokens, "error": error})
