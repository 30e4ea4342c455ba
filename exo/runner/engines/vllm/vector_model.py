"""A model that was trained to make vectors, in vLLM. Made by, and belonging to, one thread.

vLLM gives what the last layer gave for each token, and texts are pooled here: so requests may differ in how.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from vllm import EngineArgs, LLMEngine, PoolingOutput, PoolingParams, PoolingRequestOutput
from vllm.config import PoolerConfig
from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import tokens_input

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.limits import SLOTS
from exo.domain.model_card import ModelCard
from exo.domain.sampling import SamplingParams
from exo.errors import Fatal, Rejected, one_line
from exo.models.vector_form import VectorForm
from exo.runner.engines.admission import context_limit
from exo.runner.engines.base import EngineOutput, Progress
from exo.runner.engines.vectors import within_context
from exo.runner.engines.vllm.cache import policy
from exo.runner.engines.vllm.loading import FORMAT, TOLD_FILE, told
from exo.runner.engines.vllm.memory import UTILIZATION_LEAST, free_bytes, peak_bytes
from exo.runner.engines.vllm.step_tokens import most_step_tokens
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
        try:
            self._engine.add_request(request_id, tokens_input(list(text)), params)
        except (VLLMClientError, ValueError, TypeError, OverflowError) as error:
            raise Rejected(f"vLLM refuses input[{index}]: {one_line(error)}", param=f"input[{index}]") from error
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
    try:
        with told(card.layers, on_progress) as file:
            arguments = EngineArgs(
                model=str(folder),
                runner="pooling",
                convert="embed",
                pooler_config=PoolerConfig(seq_pooling_type="LAST", tok_pooling_type="ALL"),  # the first is not used
                dtype="float32" if card.quantization == "float32" else "auto",
                max_model_len=min(card.context, (blocks - 1) * policy.BLOCK),  # vLLM keeps a block for itself
                max_num_seqs=SLOTS,
                max_num_batched_tokens=most_step_tokens(),
                kv_cache_memory_bytes=blocks * block_bytes,
                gpu_memory_utilization=UTILIZATION_LEAST,
                block_size=policy.BLOCK,
                enable_prefix_caching=False,  # of tokens that are not computed there is nothing to pool
                load_format=FORMAT,
                model_loader_extra_config={TOLD_FILE: str(file)},
                disable_log_stats=True,
                enforce_eager=not torch.cuda.is_available(),
            )
            return LLMEngine.from_engine_args(arguments)
    except Exception as error:  # of any kind: it computes with what the files say
        raise Fatal(f"vLLM cannot load {card.model_id}: {one_line(error)}") from error
