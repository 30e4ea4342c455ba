"""A model in vLLM, with the requests that it works on. Made by, and belonging to, one thread."""

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import vllm
from vllm import EngineArgs, LLMEngine, RequestOutput
from vllm.config import StructuredOutputsConfig

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.model_card import ModelCard
from exo.domain.ray import RayCluster
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.engines.admission import check_fitting, completion_limit, context_limit, limit_asked_for
from exo.runner.engines.base import EngineOutput, Progress
from exo.runner.engines.vllm.cache import policy
from exo.runner.engines.vllm.cache.growing import Clock, FreeBytes, GrowingCache
from exo.runner.engines.vllm.cache.hooks import Hooks, hooks
from exo.runner.engines.vllm.kv.connector import transfer_config
from exo.runner.engines.vllm.kv.exchange import Exchange
from exo.runner.engines.vllm.making import CacheBlocks, add_request, made
from exo.runner.engines.vllm.memory import least_free, peak_bytes, peak_of_worker
from exo.runner.engines.vllm.outputs import outputs_of
from exo.runner.engines.vllm.prefills import Prefills
from exo.runner.engines.vllm.repetition import RecentRepetition
from exo.runner.engines.vllm.sampling import prefill_params, vllm_params
from exo.runner.engines.vllm.spread import Spread, spread_of
from exo.runner.kv.form import PromptState, Sink
from exo.runner.tokenizer import HuggingFaceTokenizer


@dataclass(slots=True)
class _Run:
    """A request in flight."""

    logprobs: int | None
    begun: bool = False
    """Whether something of it was told."""


class Loaded:
    """Everything that one model computes."""

    def __init__(
        self,
        card: ModelCard,
        tokenizer: HuggingFaceTokenizer,
        folder: Path,
        on_progress: Progress,
        free: FreeBytes | None,
        clock: Clock,
        ray: RayCluster | None,
    ) -> None:
        """`free`: bytes that keys and values may still take, by default what the system and the GPUs say.

        Raises Fatal where vLLM cannot load it.
        """
        self.card = card
        self.tokenizer = tokenizer
        self._runs: dict[TaskId, _Run] = {}
        self._exchange = Exchange()
        ours = hooks() if ray is None else Hooks()  # what another machine has free is not known here
        self._spread = spread_of(card, ray)
        free_now = least_free(self._spread.gpus) if free is None else free()
        self._engine = _engine(card, folder, on_progress, free_now, self._exchange, self._spread, ours)
        self._workers_peak = self._ask_workers_peak()
        self._cache = GrowingCache(self._engine, free, clock) if ours.grow else None
        self._prefills = Prefills(self._engine)
        self._room = self._engine.vllm_config.model_config.max_model_len

    @property
    def in_flight(self) -> int:
        """Requests submitted and not over."""
        return len(self._runs)

    @property
    def peak_memory_bytes(self) -> int:
        """Of torch's allocator and our cache, or of the process where the CPU computes. Of several ranks, that of the
        one with most: as of when nothing was to do last, since only the engine's thread may ask them."""
        beside = self._cache.peak_bytes if self._cache is not None and torch.cuda.is_available() else 0
        return (self._workers_peak or peak_bytes()) + beside

    @property
    def cache_bytes(self) -> int:
        """Memory of keys and values on one rank, where these can grow."""
        return self._cache.bytes if self._cache is not None else 0

    @property
    def exchanges(self) -> str:
        """Why states are neither handed out nor taken in; empty where they are."""
        return self._exchange.refusal

    def held(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's first tokens the prefix cache holds: whole blocks."""
        return self._exchange.held(prompt)

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        grammar: str | None,
        state: PromptState | None = None,
    ) -> None:
        """Queues a request, held to `grammar` and beginning with `state` where they are given. Raises Rejected."""
        self._check_new(task_id)
        context = context_limit(params, self.card.context)
        asked = limit_asked_for(params, len(prompt), context)
        most = completion_limit(len(prompt), asked, context)
        check_fitting(len(prompt), asked, self._room)
        given = vllm_params(params, min(most, self._room - len(prompt)), self.tokenizer.end_tokens, grammar)
        if state is not None:
            self._exchange.take_in(task_id, state, len(prompt))
        given.extra_args = {**(given.extra_args or {}), **self._exchange.arguments(task_id)}
        request_id = self._add(task_id, prompt, given)
        self._runs[task_id] = _Run(params.logprobs)
        self._prefills.begin(task_id, request_id)

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """Raises Rejected."""
        reason = "vLLM has loaded this model for writing, and makes no vectors beside texts: place it on MLX"
        raise Rejected(reason, code="embeddings_not_supported", param="model")

    def prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """Queues a prompt whose state, of all tokens but the last, is handed to `sink`. Raises Rejected."""
        self._check_new(task_id)
        if self.exchanges:
            raise Rejected(self.exchanges, code="exchange_not_supported")
        completion_limit(len(prompt), 1, self.card.context)
        check_fitting(len(prompt), 1, self._room)
        self._exchange.hand_out(task_id, len(prompt) - 1, sink)
        if len(prompt) > 1:
            self._add(task_id, prompt[:-1], prefill_params(self._exchange.arguments(task_id)))
        self._runs[task_id] = _Run(None)

    def step(self) -> list[EngineOutput]:
        """What one step gave. Empty while a grammar is being made ready, or memory is waited for."""
        if self._cache is not None:
            self._cache.make_room()
        given = [one for one in self._engine.step() if isinstance(one, RequestOutput)]  # no vectors were asked for
        handed_out = self._exchange.progress()
        self.cancel(one.task_id for one in handed_out if one.is_last)  # what vLLM would go on with is not wanted
        outputs = [output for one in given for output in self._outputs(one)]
        return [*handed_out, *outputs, *self._prefills.advanced()] or self._starved()

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests at once."""
        dropped = [task_id for task_id in task_ids if self._runs.pop(task_id, None) is not None]
        for task_id in dropped:
            self._prefills.end(task_id)
            self._exchange.forget(task_id)
        self._engine.abort_request(list[str](dropped))

    def rest(self) -> None:
        """Gives back memory that nothing uses."""
        if self._runs:
            return
        self._workers_peak = self._ask_workers_peak()
        if self._cache is not None:
            self._cache.shrink()

    def close(self) -> None:
        """Gives the memory back."""
        self._engine.engine_core.shutdown()
        del self._engine, self._cache
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _ask_workers_peak(self) -> int:
        """0 where the only worker is in this process."""
        return 0 if self._spread.ranks == 1 else max(self._engine.collective_rpc(peak_of_worker))

    def _starved(self) -> list[EngineOutput]:
        failed = [] if self._cache is None else self._cache.starved()
        self.cancel(output.task_id for output in failed)
        return list(failed)

    def _check_new(self, task_id: TaskId) -> None:
        if task_id in self._runs:
            raise Rejected(f"task {task_id} is running already", code="duplicate_task")

    def _add(self, task_id: TaskId, prompt: Sequence[int], params: vllm.SamplingParams) -> str:
        """Gives vLLM's own id of the request."""
        try:
            return add_request(self._engine, task_id, prompt, params)
        except Rejected:
            self._exchange.forget(task_id)
            raise

    def _outputs(self, given: RequestOutput) -> list[EngineOutput]:
        task_id = TaskId(given.request_id)
        run = self._runs.get(task_id)
        if run is None:
            return []
        outputs = outputs_of(given, not run.begun, run.logprobs, self.tokenizer.token_bytes)
        run.begun = True
        self._prefills.end(task_id)
        if given.finished:
            del self._runs[task_id]
            self._exchange.forget(task_id)
        return outputs


def _engine(
    card: ModelCard, folder: Path, on_progress: Progress, free: int, exchange: Exchange, spread: Spread, ours: Hooks
) -> LLMEngine:
    block_bytes = spread.part(card, card.kv_bytes(policy.BLOCK))
    size = policy.limit if ours.grow else policy.fixed
    blocks = size(card.context, free, spread.part(card, card.weight_bytes), block_bytes)
    own = EngineArgs(
        model=str(folder),
        enable_prefix_caching=True,
        scheduler_cls=ours.scheduler_cls,
        worker_cls=ours.worker_cls,
        async_scheduling=ours.async_scheduling,
        logits_processors=[RecentRepetition],
        structured_outputs_config=StructuredOutputsConfig(backend="guidance"),
        tensor_parallel_size=spread.gpus,
        pipeline_parallel_size=spread.machines,
        distributed_executor_backend=spread.executor,
        kv_transfer_config=transfer_config(exchange) if spread.ranks == 1 else None,
    )
    return made(card, own, CacheBlocks(blocks, block_bytes), on_progress, is_local=spread.executor is None)
