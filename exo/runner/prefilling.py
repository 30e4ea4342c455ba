"""Prompts that this runner computes for other instances, whose runners fetch what is computed."""

import asyncio
from dataclasses import dataclass

from exo.domain.ids import TaskId
from exo.domain.messages.prefills import PrefillAsked
from exo.errors import Rejected
from exo.runner.engine_thread import EngineThread
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput
from exo.runner.kv.outgoing import Outgoing
from exo.runner.kv.serving import PrefillServer

PROMPTS_MOST = 4
"""Prompts that are computed for others at once. They share the engine: with more, each takes longer than whoever asked
would need for it."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """A prompt in the engine."""

    outgoing: Outgoing
    tokens: int
    """That its state covers."""


class Prefilling:
    """What is computed for others. Lives on the event loop."""

    def __init__(self, engine: EngineThread, most: int, vocabulary_size: int) -> None:
        """`most`: requests that the engine runs side by side."""
        self._engine = engine
        self._most = min(most, PROMPTS_MOST)
        self._vocabulary_size = vocabulary_size
        self._server = PrefillServer(self._leave)
        self._starting = asyncio.Lock()
        self._computed: dict[TaskId, _Computed] = {}

    async def begin(self, asked: PrefillAsked) -> int:
        """Have the engine compute a prompt; the port at which its state can be had. Raises Rejected."""
        async with self._starting:
            try:
                port = await self._server.start()  # with the first prompt: most runners are never asked
            except OSError as error:
                raise Rejected(f"it has no port to hand out states at: {error}") from error
        self._begin(asked)
        return port

    def _begin(self, asked: PrefillAsked) -> None:
        if len(self._computed) >= self._most:
            raise Rejected(f"it computes {self._most} prompts for others already")
        if asked.task_id in self._computed:
            raise Rejected(f"it computes the prompt of {asked.task_id} already")
        if max(asked.tokens) >= self._vocabulary_size:
            raise Rejected(f"its model has no token {max(asked.tokens)}: both nodes need the same files of the model")
        outgoing = self._server.expect(asked.task_id, asked.key)
        self._computed[asked.task_id] = _Computed(outgoing, len(asked.tokens) - 1)
        self._engine.prefill(asked.task_id, asked.tokens, outgoing)

    def take(self, output: EngineOutput) -> bool:
        """Whether an output of the engine is of a prompt that is computed for others. The last one ends it."""
        computed = self._computed.get(output.task_id)
        if computed is None:
            return False
        match output:
            case PrefillOutput(is_last=True):
                computed.outgoing.done(computed.tokens)
            case FailedOutput():
                computed.outgoing.failed(output.message)
            case _:
                return True
        del self._computed[output.task_id]
        return True

    async def close(self) -> None:
        """Compute for nobody any more."""
        await self._server.close()

    def _leave(self, task_id: TaskId) -> None:
        """Nobody waits for it any more."""
        if self._computed.pop(task_id, None) is not None:
            self._engine.cancel([task_id])
