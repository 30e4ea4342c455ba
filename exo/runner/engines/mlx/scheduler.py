"""Continuous batching: requests come in and leave at the borders of steps, and share the model in between."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import generation_stream

from exo.domain.embedding import Pooling
from exo.domain.ids import TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.errors import Rejected
from exo.runner.engines.admission import MEMORY_PAUSE, UNLIMITED_RESERVE
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, TokenOutput
from exo.runner.engines.mlx import memory
from exo.runner.engines.mlx.cache_bytes import measure
from exo.runner.engines.mlx.choosing import ChoiceError, guarded
from exo.runner.engines.mlx.decoding import Decoding, TokenResponse
from exo.runner.engines.mlx.embeddings import Embeddings
from exo.runner.engines.mlx.failures import STEP_ERRORS, Failures
from exo.runner.engines.mlx.hidden_states import HiddenStates
from exo.runner.engines.mlx.keeping import Keeping
from exo.runner.engines.mlx.kept import Kept
from exo.runner.engines.mlx.layers import LayerCache, compact_copy, grows, new_layers, tried
from exo.runner.engines.mlx.prefill import Prefill
from exo.runner.engines.mlx.prefix_cache import Tokens, as_tokens
from exo.runner.engines.mlx.prompts import Prompts
from exo.runner.engines.mlx.request import Request
from exo.runner.engines.mlx.request_queue import AnyRequest, RequestQueue
from exo.runner.engines.mlx.room import Room
from exo.runner.engines.mlx.sampling import Choice, greedy
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.mlx.taking_in import TakingIn, why_not
from exo.runner.engines.mlx.width import WIDTH
from exo.runner.engines.ranks import SOLO, Ranks
from exo.runner.kv.form import PromptState, Sink
from exo.runner.structured.guide import Guide
from exo.runner.structured.said import short

logger = logging.getLogger(__name__)

SNAPSHOT_EVERY = 256
"""Tokens between two snapshots of a state that cannot be trimmed; more where its windows are longer, so that snapshots
take about as much memory as keys and values of all tokens would."""
SHRINK_EVERY = 64
"""Steps between two looks at whether other programs need the prefix cache's memory."""
CLEAR_EVERY = 512
"""Steps between two returns of the memory that MLX keeps for reuse. mlx-lm's own number."""


class Scheduler:
    """Everything that one model computes. Belongs to one thread.

    All ranks of a model call `submit`, `step` and `cancel` in the same order. What depends on a machine (its memory,
    its speed, its clock) they agree on, so that they do the same.
    """

    def __init__(
        self,
        model: nn.Module,
        end_tokens: Iterable[int],
        ranks: Ranks = SOLO,
        free_bytes: Callable[[], int] = memory.free_bytes,
        pace: SlicePace | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_lost_step: Callable[[], None] = lambda: None,
        width: int = WIDTH,
        states: HiddenStates | None = None,
    ) -> None:
        """So many requests as `width` are computed side by side; more wait. `on_lost_step` is called after a step that
        broke off. `states`: what vectors are made of; None where the model has none.
        """
        self._ranks = ranks
        self._on_lost_step = on_lost_step
        self._width = width
        with mx.stream(generation_stream):
            shown = tried(model)
        cost = measure(shown)
        self.exchanges = why_not(shown, ranks.size)
        """Why states of prompts cannot be handed out and taken in; empty where they can."""
        self._taking_in = TakingIn(shown, lambda: new_layers(model))
        self._failures = Failures(ranks)
        self._keeping = Keeping(ranks, free_bytes)
        self._queue = RequestQueue(Room(cost, ranks, free_bytes), self._keeping, ranks, clock)
        every, all_grow = ranks.agree([-max(SNAPSHOT_EVERY, cost.window), all(map(grows, new_layers(model)))])
        pace = pace or SlicePace()
        self._prompts = Prompts(model, self._keeping, ranks, pace, self._failures, None if all_grow else -every)
        self._embeddings = Embeddings(model, states, ranks, pace, self._failures)
        self._decoding = Decoding(model, end_tokens)
        self._steps = 0

    @property
    def in_flight(self) -> int:
        """Requests that have neither ended nor been cancelled."""
        return len(self._queue) + self._admitted + len(self._embeddings.waiting)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the prefix cache."""
        return self._keeping.nbytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the states of requests that are being computed."""
        return self._prompts.nbytes + self._decoding.nbytes + self._embeddings.nbytes

    @property
    def _admitted(self) -> int:
        """Requests that have a slot. Those for vectors need none."""
        return len(self._prompts.waiting) + len(self._decoding.requests)

    def held(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's tokens need not be computed."""
        return self._keeping.held(as_tokens(prompt), len(prompt) - 1) if prompt else 0

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        choice: Choice,
        max_tokens: int | None,
        context: int,
        state: PromptState | None = None,
    ) -> None:
        """Queues a request. Raises Rejected: `duplicate_task`, and what `RequestQueue.submit` says.

        A `state` from elsewhere is kept as if the prompt's beginning had been computed here. One that does not fit is
        left, with a line in the log.
        """
        self._check_new(task_id)
        # A state lies in the memory that MLX computes in, except on CUDA, and goes when it was taken in.
        beside = state.nbytes if state is not None and memory.shares_host() else 0
        self._queue.submit(task_id, prompt, choice, max_tokens, context, self.held_bytes + beside)
        if state is not None:
            self._take_in(task_id, as_tokens(prompt), state)

    def prefill(self, task_id: TaskId, prompt: Sequence[int], context: int, sink: Sink) -> None:
        """Queues a prompt whose state `sink` is to get. Raises Rejected as `submit`, and `exchange_not_supported`."""
        if self.exchanges:
            raise Rejected(self.exchanges, code="exchange_not_supported")
        self._check_new(task_id)
        self._queue.submit(task_id, prompt, Choice(greedy, ()), 1, context, self.held_bytes, sink)

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], pooling: Pooling, dimensions: int) -> None:
        """Queues texts that are to become vectors. Raises Rejected: `duplicate_task`, and what `RequestQueue.embed`
        says.
        """
        self._check_new(task_id)
        self._queue.embed(task_id, inputs, pooling, dimensions, self.held_bytes)

    def step(self) -> list[EngineOutput]:
        """A token for each request that decodes, and a slice of prefill, or of texts for vectors."""
        self._steps += 1
        with mx.stream(generation_stream):
            outputs = [*self._decode(), *self._admit(), *self._advance()]
            outputs += self._start()
            self._tidy()
        if not outputs and self._queue and not self._admitted and not self._embeddings.waiting:
            time.sleep(MEMORY_PAUSE)
        return outputs

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests at once, and keeps what was computed of them. Unknown ones are ignored."""
        with mx.stream(generation_stream):
            for task_id in task_ids:
                if task_id in self._prompts.waiting:
                    self._prompts.drop(task_id)
                elif task_id in self._decoding.requests:
                    self._keep(*self._decoding.remove(task_id))
                elif task_id in self._embeddings.waiting:
                    del self._embeddings.waiting[task_id]
                else:
                    self._queue.drop(task_id)

    def rest(self) -> None:
        """Gives up what other programs need by now, between requests. Several ranks cannot agree on a time for it."""
        if self._ranks.size == 1:
            self._keeping.shrink()

    def close(self) -> None:
        """Waits for what is being computed, and lets everything go."""
        mx.synchronize(generation_stream)
        self._queue.clear()
        self._prompts.waiting.clear()
        self._embeddings.waiting.clear()
        self._decoding.drop_all()
        self._keeping.clear()

    def _check_new(self, task_id: TaskId) -> None:
        held = (self._prompts.waiting, self._decoding.requests, self._embeddings.waiting, self._queue)
        if any(task_id in one for one in held):
            raise Rejected(f"task {task_id} is running already", code="duplicate_task")

    def _take_in(self, task_id: TaskId, tokens: Tokens, state: PromptState) -> None:
        """Keeps a state from elsewhere for the request that comes with it."""
        try:
            if self.exchanges:
                raise Rejected(self.exchanges)
            if not 0 < state.tokens < len(tokens):
                raise Rejected(f"it covers {state.tokens} tokens, and the prompt has {len(tokens)}")
            if not self._keeping.fits(state.nbytes):
                raise Rejected(f"memory for its {state.nbytes} bytes is not free beside what runs")
            with mx.stream(generation_stream):
                kept = Kept(state.tokens, self._taking_in.layers(state))
                if not self._keeping.put(tokens[: state.tokens], kept):
                    raise Rejected(f"memory for the {kept.nbytes} bytes of its caches is not free beside what runs")
        except (Rejected, *STEP_ERRORS) as error:
            logger.warning("the state from elsewhere for %s was left: %s", task_id, error)

    def _advance(self) -> Sequence[EngineOutput]:
        """A slice of the prompts, or of the texts for vectors: where both wait, in turn, so that who decodes stands
        still for one slice and not for two."""
        decoding, prompts = len(self._decoding.requests), len(self._prompts.waiting)
        if self._embeddings.waiting and (not prompts or self._steps % 2):
            return self._embeddings.advance(decoding + prompts)
        return self._prompts.advance(decoding)

    def _decode(self) -> Sequence[EngineOutput]:
        if not self._decoding.requests:
            return []
        try:
            found = self._decoding.next()
        except STEP_ERRORS as error:
            return self._begin_anew(error, self._decoding.drop_all())
        self._failures.forget()
        return [self._token(request, response) for request, response in found]

    def _token(self, request: Request, response: TokenResponse) -> TokenOutput | FailedOutput:
        guide = request.choice.guide
        if guide is not None and guide.problem:
            return self._unguided(request, response, guide)
        try:
            logprobs = _logprobs(request, response)
        except STEP_ERRORS as error:
            self._leave(request, response)
            return self._failures.of(request.task_id, error)
        request.generated.append(response.token)
        request.suspect = False
        reason = response.finish_reason
        if reason is not None:
            assert response.all_tokens is not None
            assert response.prompt_cache is not None
            self._keep(response.all_tokens, response.prompt_cache)
        elif request.length >= request.reserved and not self._extend(request):
            self._keep(*self._decoding.remove(request.task_id))
            reason = "length"
        return TokenOutput(request.task_id, response.token, reason, logprobs)

    def _unguided(self, request: Request, response: TokenResponse, guide: Guide) -> FailedOutput:
        """The end of a request whose constraint turned out, on the way, to be too complex to be held."""
        self._leave(request, response)
        reason = f"{guide.param}: {short(guide.problem)}"
        return FailedOutput(request.task_id, "invalid_response_format", reason, guide.param)

    def _leave(self, request: Request, response: TokenResponse) -> None:
        """Ends a request with this token, if it is not over by itself."""
        if response.finish_reason is None:
            self._decoding.remove(request.task_id)

    def _extend(self, request: Request) -> bool:
        """Sets memory aside for more of a running request. False where there is none: it must end here."""
        before = request.reserved
        request.reserved += UNLIMITED_RESERVE
        if self._queue.has_room(self._running(), self.held_bytes):
            return True
        request.reserved = before
        return False

    def _admit(self) -> list[FailedOutput]:
        """Admits queued requests in their order, as far as slots and memory go."""
        failed: list[FailedOutput] = []
        while self._admitted < self._width:
            match self._queue.take(self._running(), self.held_bytes):
                case None:
                    break
                case FailedOutput() as output:
                    failed.append(output)
                case Request() as request:
                    self._prompts.add(request)
                case request:
                    self._embeddings.waiting[request.task_id] = request
        return failed

    def _running(self) -> list[AnyRequest]:
        """All that memory is set aside for."""
        prefilling = (prefill.request for prefill in self._prompts.waiting.values())
        return [*prefilling, *self._decoding.requests.values(), *self._embeddings.waiting.values()]

    def _start(self) -> list[EngineOutput]:
        """Has the prompts that are computed decode."""
        ready = self._prompts.take_finished()
        outputs: list[EngineOutput] = [self._handed_out(prefill) for prefill in ready if prefill.handing]
        finished = [prefill for prefill in ready if not prefill.handing]
        outputs += [_prefilled(prefill) for prefill in finished if not prefill.request.generated]
        # Told apart before anything begins: an error makes suspects of those whose states are gone then.
        suspects = [prefill for prefill in finished if prefill.request.suspect]
        others = [prefill for prefill in finished if not prefill.request.suspect]
        outputs += self._start_together(others) if others else []
        return outputs + [output for prefill in suspects for output in self._start_alone(prefill)]

    def _handed_out(self, prefill: Prefill) -> EngineOutput:
        """The end of a request for its state alone."""
        try:
            prefill.hand_out_rest()
        except STEP_ERRORS as error:
            return self._failures.of(prefill.request.task_id, error)
        self._failures.forget()
        return _prefilled(prefill)

    def _start_together(self, prefills: Sequence[Prefill]) -> list[FailedOutput]:
        requests = [prefill.request for prefill in prefills]
        try:
            begun = self._decoding.begin(prefills)
        except STEP_ERRORS as error:
            return self._begin_anew(error, requests)
        try:
            self._decoding.join(begun, requests)
        except STEP_ERRORS as error:
            return self._begin_anew(error, [*self._decoding.drop_all(), *requests])
        return []

    def _start_alone(self, prefill: Prefill) -> Sequence[TokenOutput | FailedOutput]:
        """Has a request decode after one step alone. Others are disturbed only where it cannot join them."""
        request = prefill.request
        try:
            begun = self._decoding.begin([prefill])
            (response,) = begun.next()
        except STEP_ERRORS as error:
            return self._begin_anew(error, [request])
        try:
            if response.finish_reason is None:
                self._decoding.join(begun, [request])
        except STEP_ERRORS as error:
            return self._begin_anew(error, [*self._decoding.drop_all(), request])
        self._failures.forget()
        return [self._token(request, response)]

    def _begin_anew(self, error: Exception, requests: Sequence[Request]) -> list[FailedOutput]:
        """After an error of requests whose states are lost with it: the one at fault fails, the others begin anew.

        Where nobody knows whose fault it is, each begins with a step alone.
        """
        self._on_lost_step()
        named = error.task_id if isinstance(error, ChoiceError) else None
        at_fault = [request for request in requests if request.task_id == named or len(requests) == 1]
        self._failures.check_alone(error)
        for request in requests:
            if request not in at_fault:
                request.suspect |= not at_fault
                self._prompts.add(request)
        return [self._failures.of(request.task_id, error) for request in at_fault]

    def _keep(self, tokens: Sequence[int], layers: Sequence[LayerCache]) -> None:
        """Keeps a state that comes out of the batch, in arrays of its own."""
        self._keeping.put(as_tokens(tokens), Kept(len(tokens), [compact_copy(layer) for layer in layers]))

    def _tidy(self) -> None:
        if self._steps % SHRINK_EVERY == 0 or not self.in_flight:
            self._keeping.shrink()
        if self._steps % CLEAR_EVERY == 0:
            mx.clear_cache()


def _logprobs(request: Request, response: TokenResponse) -> TokenLogprobs | None:
    teller = request.choice.teller
    if teller is None:
        return None
    return guarded(teller.tell, request.task_id)(response.token, response.logprobs)


def _prefilled(prefill: Prefill) -> PrefillOutput:
    total = len(prefill.tokens)
    return PrefillOutput(prefill.request.task_id, total, total, prefill.cached, is_last=prefill.handing is not None)
