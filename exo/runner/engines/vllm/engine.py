"""The engine on vLLM. Nothing of vLLM is imported before `load`: it takes seconds, and reads its environment then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.ray import RayCluster
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard
from exo.errors import Fatal
from exo.models.integrity import check_folder
from exo.models.vector_form import read_vector_form
from exo.runner.engines.admission import check_biases
from exo.runner.engines.base import EngineOutput, Progress, Tokenizer
from exo.runner.engines.ranks import SOLO, Peers, Ranks, free_port
from exo.runner.engines.threads import ThreadShare
from exo.runner.engines.vllm.environment import prepare_environment
from exo.runner.kv.form import PromptState, Sink
from exo.runner.structured.guide import Guide
from exo.runner.structured.whole import whole_grammar
from exo.runner.tokenizer import HuggingFaceTokenizer

if TYPE_CHECKING:
    from exo.runner.engines.vllm.loaded import Loaded
    from exo.runner.engines.vllm.step_threads import StepThreads
    from exo.runner.engines.vllm.vector_model import VectorModel


class VllmEngine:
    """A whole model on the GPUs of this machine, or on its CPU."""

    def __init__(
        self,
        threads: ThreadShare,
        free_bytes: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        ray: RayCluster | None = None,
    ) -> None:
        """On a CPU it computes with as many threads as it finds free cores for, at most what `threads` allows.

        `free_bytes`: memory that keys and values may still take, by default what the system and the GPUs say.
        `ray`: machines that the model is divided over.
        """
        self._threads = threads
        self._free_bytes = free_bytes
        self._clock = clock
        self._ray = ray
        self._loaded: Loaded | VectorModel | None = None
        self._step_threads: StepThreads | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        return self._model.tokenizer

    @property
    def in_flight(self) -> int:
        """Requests submitted and not over."""
        return self._loaded.in_flight if self._loaded is not None else 0

    @property
    def peak_memory_bytes(self) -> int:
        """By torch's allocator on a GPU, by the system on the CPU."""
        return self._loaded.peak_memory_bytes if self._loaded is not None else 0

    @property
    def cache_bytes(self) -> int:
        """Memory that keys and values have by now, on one GPU where there are several; 0 where they cannot grow."""
        return self._loaded.cache_bytes if self._loaded is not None else 0

    @property
    def ranks(self) -> Ranks:
        """vLLM divides a model over the GPUs of one machine by itself."""
        return SOLO

    @property
    def _model(self) -> Loaded | VectorModel:
        if self._loaded is None:
            raise Fatal("the engine holds no model")
        return self._loaded

    def listen(self, host: str) -> int:
        """A port that nobody will listen at."""
        return free_port(host)

    def join(self, peers: Peers) -> None:
        """Raises Fatal: there is nobody to meet."""
        raise Fatal("a model on vLLM is not divided over several nodes: place it on one, or on MLX")

    def load(self, shard: Shard, folder: Path, on_progress: Progress) -> None:
        """Has vLLM read the weights: for vectors, where the model was trained to make them, else for writing."""
        check_folder(folder)
        tokenizer = HuggingFaceTokenizer(folder)
        prepare_environment(self._threads.most, self._ray)
        from exo.runner.engines.vllm.loaded import Loaded  # noqa: PLC0415  (imports vLLM)
        from exo.runner.engines.vllm.step_threads import StepThreads  # noqa: PLC0415
        from exo.runner.engines.vllm.vector_model import VectorModel  # noqa: PLC0415

        self._step_threads = StepThreads(self._threads)
        form = read_vector_form(folder)
        if form.is_trained and not form.refusal:
            self._loaded = VectorModel(shard.card, form, tokenizer, folder, on_progress)
        else:
            self._loaded = Loaded(shard.card, tokenizer, folder, on_progress, self._free_bytes, self._clock, self._ray)

    @property
    def exchanges(self) -> str:
        """Empty for models of plain attention on one GPU, or on the CPU."""
        return self._model.exchanges

    def held(self, prompt: Sequence[int]) -> int:
        """Whole blocks of vLLM's prefix cache."""
        return self._model.held(prompt)

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        guide: Guide | None = None,
        state: PromptState | None = None,
    ) -> None:
        """Queues a request. Raises Rejected as the protocol says, and for a parameter that vLLM does not have."""
        check_biases(params, self._model.tokenizer.vocabulary_size)
        grammar = None if guide is None else whole_grammar(guide)
        self._model.submit(task_id, prompt, params, grammar, state)

    def prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """Queues a prompt for its state. Raises Rejected as the protocol says."""
        self._model.prefill(task_id, prompt, sink)

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """Queues texts. Raises Rejected as the protocol says, and where the model is loaded for writing."""
        self._model.embed(task_id, inputs, params)

    def step(self) -> list[EngineOutput]:
        """One step of vLLM's scheduler: tokens for those that decode, and as much prefill as fits beside them."""
        if self._step_threads is not None:
            self._step_threads.before_step()
        return self._model.step()

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests at once."""
        if self._loaded is not None:
            self._loaded.cancel(task_ids)

    def rest(self) -> None:
        """Gives back the memory of keys and values that nothing uses."""
        if self._loaded is not None:
            self._loaded.rest()

    def close(self) -> None:
        """Gives back the model's memory."""
        if self._step_threads is not None:
            self._step_threads.close()
            self._step_threads = None
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None
