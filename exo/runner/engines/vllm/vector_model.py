"""A model that was trained to make vectors, in vLLM. Made by, and belonging to, one thread.

vLLM gives what the last layer gave for each token, and texts are pooled here: so requests may differ in how.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from vllm import EngineArgs, LLMEngine, PoolingOutput, PoolingParams, PoolingRequestOutput
from vllm.config import PoolerConfig

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.model_card import ModelCard
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.models.vector_form import VectorForm
from exo.runner.engines.admission import context_limit
from exo.runner.engines.base import EngineOutput, Progress
from exo.runner.engines.vectors import within_context
from exo.runner.engines.vllm.cache import policy
from exo.runner.engines.vllm.making import CacheBlocks, add_request, made
from exo.runner.engines.vllm.memory import free_bytes, peak_bytes
from exo.runner.engines.vllm.vector_texts import TextsRun
from exo.runner.kv.form import PromptState, Sink
from exo.runner.tokenizer import HuggingFaceTokenizer


class VectorModel:
    """Everything that it computes."""

    def __init__(
        self, card: ModelCard, form: VectorForm, tokenizer: HuggingFaceTokenizer, folder: Path, on_progress: Progress
    ) -> None:
        """Raises Fatal where vLLM cannot load it."""
        self.tokenizer = tokenizer
        self._card = card
        self._form = form
        self._runs: dict[TaskId, TextsRun] = {}
        self._texts: dict[str, tuple[TextsRun, int]] = {}
        """By what vLLM calls them."""
        self._engine = _engine(card, folder, on_progress)
        self._context = self._engine.vllm_config.model_config.max_model_len

    @property
    def in_flight(self) -> int:
        """Requests submitted and not over."""
        return len(self._runs)

    @property
    def peak_memory_bytes(self) -> int:
        """Of torch's allocator, or of the process where the CPU computes."""
        return peak_bytes()

    @property
    def cache_bytes(self) -> int:
        """0: they do not grow."""
        return 0

    @property
    def exchanges(self) -> str:
        """Why it hands out no states of prompts, and takes none in."""
        return "vLLM has loaded this model for vectors, and keeps no states of prompts"

    def held(self, prompt: Sequence[int]) -> int:
        """0: it keeps none."""
        return 0

    def prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """Raises Rejected."""
        raise Rejected(self.exchanges, code="exchange_not_supported")

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        grammar: str | None,
        state: PromptState | None = None,
    ) -> None:
        """Raises Rejected."""
        raise Rejected(f"vLLM has loaded {self._card.model_id} for vectors, and does not write with it", param="model")

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """Queues texts. Raises Rejected as the engines' protocol says."""
        if task_id in self._runs:
            raise Rejected(f"task {task_id} is running already", code="duplicate_task")
        pooling, dimensions = self._form.chosen(params, self._card.hidden_size)
        context = min(context_limit(params, self._card.context), self._context)
        texts = within_context(inputs, context, truncate=params.truncate, ending=self.tokenizer.text_ending)
        run = TextsRun(task_id, [len(text) for text in texts], pooling, dimensions)
        self._runs[task_id] = run
        try:
            for index, text in enumerate(texts):
                self._submit(run, index, text)
        except Rejected:
            self.cancel([task_id])
            raise

    def step(self) -> list[EngineOutput]:
        """One step of vLLM's scheduler."""
        given = [one for one in self._engine.step() if isinstance(one, PoolingRequestOutput)]
        return [output for one in given for output in self._outputs(one)]

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests at once."""
        for task_id in task_ids:
            if (run := self._runs.pop(task_id, None)) is not None:
                waiting = [request_id for request_id in run.request_ids if self._texts.pop(request_id, None)]
                self._engine.abort_request(waiting)

    def rest(self) -> None:
        """It holds what it was given."""

    def close(self) -> None:
        """Gives the memory back."""
        self._engine.engine_core.shutdown()
        del self._engine

    def _submit(self, run: TextsRun, index: int, text: Sequence[int]) -> None:
        request_id = run.request_id(index)
        params = PoolingParams(task="token_embed", use_activation=False)
        add_request(self._engine, request_id, text, params, f"input[{index}]")
        self._texts[request_id] = (run, index)

    def _outputs(self, given: PoolingRequestOutput[PoolingOutput]) -> list[EngineOutput]:
        """A text's, unless its request is over."""
        run, index = self._texts.pop(given.request_id, (None, 0))
        if run is None:
            return []
        failed = given.error is not None
        outputs = run.failed(index, str(given.error)) if failed else run.take(index, given.outputs.data)
        if run.is_over:
            self.cancel([run.task_id])
        return outputs


def _engine(card: ModelCard, folder: Path, on_progress: Progress) -> LLMEngine:
    block_bytes = card.kv_bytes(policy.BLOCK)
    blocks = policy.fixed(card.context, free_bytes(), card.weight_bytes, block_bytes)
    own = EngineArgs(
        model=str(folder),
        runner="pooling",
        convert="embed",
        pooler_config=PoolerConfig(seq_pooling_type="LAST", tok_pooling_type="ALL"),  # the first is not used
        enable_prefix_caching=False,  # of tokens that are not computed there is nothing to pool
    )
    return made(card, own, CacheBlocks(blocks, block_bytes), on_progress)
