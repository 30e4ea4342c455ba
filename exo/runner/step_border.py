"""The border of two steps: what the ranks of a model begin there, and what they end, together.

Every rank is told the same requests in the same order, by its instance's tasks, but not at the same moment. At a border
they agree, by one vector of numbers of which each rank gets the least:

- how many requests each was told (and has the tokens of): so many are begun;
- for each running request whether it goes on: rank 0 alone, which reads the output, says no, on a stop sequence or a
  cancellation;
- how many run, and a digest of all tokens so far: where these differ, ranks no longer compute the same, and stop.

With the number of new requests known, a second vector says whether each rank could read them: what one refuses, all do.
A rank with nothing to do waits to be told something, which all will be, and only then for the others.

With several ranks the question for a border is asked at the one before, so that the answer, which comes after all that
the model computes at that moment, is there when it is needed. One rank answers itself at once.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected, Retryable
from exo.runner.engines.base import Engine, EngineOutput, FailedOutput, TokenOutput
from exo.runner.engines.ranks import Answer
from exo.runner.kv.form import PromptState, Sink
from exo.runner.structured.guide import Guide

DIGEST_MASK = (1 << 62) - 1
DIGEST_FACTOR = 1_000_003


@dataclass(frozen=True, slots=True)
class _Told:
    """A request that this rank was told. Without a beginning: it could not read it, and has said so, or it was
    cancelled before."""

    task_id: TaskId
    begin: Callable[[], None] | None = None
    """Hands it to the engine, which may refuse it."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What the ranks were asked, about the requests that ran at that moment."""

    running: tuple[TaskId, ...]
    answer: Answer


class StepBorder:
    """Begins and ends an engine's requests. Belongs to the engine's thread."""

    def __init__(self, engine: Engine, slots: int) -> None:
        """At most `slots` requests run side by side; the same on all ranks."""
        self._engine = engine
        self._slots = slots
        self._waiting: deque[_Told] = deque()
        self._begun = 0
        self._running: dict[TaskId, None] = {}
        self._ending: set[TaskId] = set()
        self._digest = 0
        self._question: _Question | None = None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until somebody tells this rank something."""
        return not self._waiting and not self._engine.in_flight

    def tell(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        guide: Guide | None = None,
        state: PromptState | None = None,
    ) -> None:
        """A request that is to be begun when all ranks have been told it."""
        self._waiting.append(_Told(task_id, lambda: self._engine.submit(task_id, prompt, params, guide, state)))

    def tell_prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """As `tell`, of a prompt whose state alone is wanted."""
        self._waiting.append(_Told(task_id, lambda: self._engine.prefill(task_id, prompt, sink)))

    def tell_texts(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """As `tell`, of texts that are to become vectors."""
        self._waiting.append(_Told(task_id, lambda: self._engine.embed(task_id, inputs, params)))

    def refuse(self, task_id: TaskId) -> None:
        """A request that this rank could not read, or that was cancelled before: it is not to be begun. Nothing more
        will be said of it here."""
        self._waiting.append(_Told(task_id))

    def end(self, task_ids: Iterable[TaskId]) -> None:
        """Requests that are to be ended. Rank 0 alone says so."""
        known = {told.task_id for told in self._waiting} | self._running.keys()
        self._ending |= known & set(task_ids)

    def cross(self) -> list[EngineOutput]:
        """Ends and begins what is agreed on. Raises Retryable where ranks are lost, or differ."""
        question = self._question or self._ask()
        self._question = None
        told, *agreed = question.answer()
        _check(agreed[:4])
        self._end([task_id for task_id, goes_on in zip(question.running, agreed[4:], strict=False) if not goes_on])
        outputs = self._begin(told)
        if self._engine.ranks.size > 1 and self._engine.in_flight:
            self._question = self._ask()
        return outputs

    def note(self, outputs: Sequence[EngineOutput]) -> None:
        """What a step gave."""
        for output in outputs:
            if isinstance(output, TokenOutput):
                self._digest = (self._digest * DIGEST_FACTOR + output.token + 1) & DIGEST_MASK
                if output.finish_reason is not None:
                    self._forget(output.task_id)
            elif isinstance(output, FailedOutput) or output.is_last:
                self._forget(output.task_id)
        if not self._engine.in_flight:
            self._question = None

    def _ask(self) -> _Question:
        running = tuple(self._running)
        count = len(running)
        goes_on = [int(task_id not in self._ending) for task_id in running]
        unused = [1] * (self._slots - count)  # as many numbers on every rank, whatever it thinks that runs
        told = self._begun + len(self._waiting)
        values = [told, count, -count, self._digest, -self._digest, *goes_on, *unused]
        return _Question(running, self._engine.ranks.ask(values))

    def _end(self, task_ids: Sequence[TaskId]) -> None:
        ended = [task_id for task_id in task_ids if task_id in self._running]
        if ended:
            self._engine.cancel(ended)
        for task_id in task_ids:
            self._forget(task_id)

    def _forget(self, task_id: TaskId) -> None:
        self._running.pop(task_id, None)
        self._ending.discard(task_id)

    def _begin(self, told: int) -> list[EngineOutput]:
        count = min(told - self._begun, self._slots - len(self._running))
        new = [self._waiting.popleft() for _ in range(count)]
        self._begun += count
        outputs: list[EngineOutput] = []
        for request, readable in zip(new, self._readable(new), strict=True):
            outputs += self._submit(request) if readable else self._leave(request)
            self._ending.discard(request.task_id)
        return outputs

    def _readable(self, new: Sequence[_Told]) -> list[bool]:
        """Whether all ranks could read each of these, and rank 0 has not ended it since."""
        if not new:
            return []
        here = [int(request.begin is not None and request.task_id not in self._ending) for request in new]
        names = [zlib.crc32(request.task_id.encode()) for request in new]
        agreed = self._engine.ranks.agree([*here, *names, *(-name for name in names)])
        if any(agreed[len(new) + at] != name or agreed[2 * len(new) + at] != -name for at, name in enumerate(names)):
            raise Retryable("the runners of this model were told different requests")
        return [bool(readable) for readable in agreed[: len(new)]]

    def _submit(self, request: _Told) -> list[EngineOutput]:
        assert request.begin is not None
        try:
            request.begin()
        except Rejected as refusal:
            return [FailedOutput(request.task_id, refusal.code, refusal.reason, refusal.param)]
        self._running[request.task_id] = None
        return []

    def _leave(self, request: _Told) -> list[EngineOutput]:
        if request.begin is None or request.task_id in self._ending:
            return []
        reason = "another runner of this model could not read the request; try again"
        return [FailedOutput(request.task_id, "unavailable", reason)]


def _check(agreed: Sequence[int]) -> None:
    """Least and most of a number are the same where all ranks have the same. Raises Retryable where they do not."""
    least_running, most_running, least_digest, most_digest = agreed
    if least_running != -most_running:
        raise Retryable("the runners of this model do not run the same requests")
    if least_digest != -most_digest:
        raise Retryable("the runners of this model do not compute the same tokens")
