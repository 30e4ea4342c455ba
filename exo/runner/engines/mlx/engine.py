"""The engine on MLX. Nothing of MLX is imported before `load`: a BLAS has to be bound first (see `blas`), and what
MLX makes belongs to the thread that made it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard
from exo.errors import Fatal, Rejected
from exo.models.integrity import check_folder
from exo.runner.engines.admission import check_biases, context_limit, limit_asked_for
from exo.runner.engines.base import EngineOutput, Progress, Tokenizer
from exo.runner.engines.mlx.blas import BlasState, bind_fast_blas, set_blas_threads
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.ranks import SOLO, Peers, Ranks, free_port
from exo.runner.engines.threads import ThreadGovernor, ThreadShare
from exo.runner.engines.vectors import within_context
from exo.runner.kv.form import PromptState, Sink
from exo.runner.structured.guide import Guide
from exo.runner.tokenizer import HuggingFaceTokenizer

if TYPE_CHECKING:
    from exo.runner.engines.mlx.group import Group
    from exo.runner.engines.mlx.loaded import Loaded


class MlxEngine:
    """A model, or one rank's part of it, on Metal, CUDA or the CPU, whichever MLX computes on here."""

    def __init__(self, cache: Path, threads: ThreadShare, pace: SlicePace | None = None) -> None:
        """`cache` is a folder for files that can be made again; `threads` may change while it runs.

        `pace` sets the size of prefill slices; without one it follows the measured speed.
        """
        self._cache = cache
        self._pace = pace
        self._threads = threads
        self._blas: BlasState | None = None
        self._governor: ThreadGovernor | None = None
        self._group: Group | None = None
        self._loaded: Loaded | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        return self._model.tokenizer

    @property
    def in_flight(self) -> int:
        """Requests submitted and not over."""
        return self._loaded.scheduler.in_flight if self._loaded is not None else 0

    @property
    def peak_memory_bytes(self) -> int:
        """By MLX's allocator."""
        return 0 if self._loaded is None else self._loaded.peak_memory_bytes

    @property
    def ranks(self) -> Ranks:
        """The processes that hold the model together."""
        return SOLO if self._group is None else self._group.ranks

    @property
    def _model(self) -> Loaded:
        if self._loaded is None:
            raise Fatal("the engine holds no model")
        return self._loaded

    def listen(self, host: str) -> int:
        """A port for the other ranks. MLX is imported here, which takes seconds that `join` has not."""
        self._bind_blas()
        importlib.import_module("exo.runner.engines.mlx.group")
        return free_port(host)

    def join(self, peers: Peers) -> None:
        """Meets the other ranks, by mlx.distributed."""
        self._bind_blas()
        from exo.runner.engines.mlx.group import Group  # noqa: PLC0415  (imports MLX)

        self._group = Group(peers)

    def load(self, shard: Shard, folder: Path, on_progress: Progress) -> None:
        """Reads the shard's weights layer by layer."""
        check_folder(folder)
        tokenizer = HuggingFaceTokenizer(folder)
        self._bind_blas()
        from exo.runner.engines.mlx.loaded import Loaded  # noqa: PLC0415  (imports MLX)
        from exo.runner.engines.mlx.weights import whole  # noqa: PLC0415  (imports MLX)

        if shard.world_size != self.ranks.size:
            raise Fatal(f"a shard of {shard.world_size} ranks cannot be loaded in a group of {self.ranks.size}")
        cut = whole if self._group is None else self._group.cut(shard)
        self._loaded = Loaded(shard.card, tokenizer, folder, on_progress, cut, self.ranks, self._pace)
        if self._blas == "fast":
            self._governor = ThreadGovernor(self._threads, set_blas_threads)

    @property
    def exchanges(self) -> str:
        """Empty unless the model is divided, or keeps something that only MLX has."""
        return self._model.scheduler.exchanges

    def held(self, prompt: Sequence[int]) -> int:
        """By the prefix cache."""
        return self._model.scheduler.held(prompt)

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        guide: Guide | None = None,
        state: PromptState | None = None,
    ) -> None:
        """Queues a request. Raises Rejected as the protocol says."""
        model = self._model
        check_biases(params, model.tokenizer.vocabulary_size)
        choice = model.samplers.for_request(task_id, params, len(prompt), guide)
        context = context_limit(params, model.card.context)
        most = limit_asked_for(params, len(prompt), context)
        model.scheduler.submit(task_id, prompt, choice, most, context, state)

    def prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """Queues a prompt whose state `sink` is to get. Raises Rejected as the protocol says."""
        self._model.scheduler.prefill(task_id, prompt, self._model.card.context, sink)

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """Queues texts for vectors. Raises Rejected as the protocol says."""
        model = self._model
        if model.states is None:
            reason = f"exo makes no vectors with models of the family '{model.card.family}': ask another model"
            raise Rejected(reason, code="embeddings_not_supported", param="model")
        pooling, dimensions = model.vector_form.chosen(params, model.states.width)
        context, ending = context_limit(params, model.card.context), model.tokenizer.text_ending
        texts = within_context(inputs, context, truncate=params.truncate, ending=ending)
        model.scheduler.embed(task_id, texts, pooling, dimensions)

    def step(self) -> list[EngineOutput]:
        """One decode step for all, and a slice of prefill, or of texts for vectors.

        A request that fails by itself is over, with a FailedOutput. An error of a step that several share is looked
        into: each takes its next step alone. What fails again and again is raised.
        """
        return self._model.scheduler.step()

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests at once."""
        if self._loaded is not None:
            self._loaded.scheduler.cancel(task_ids)

    def rest(self) -> None:
        """Shrinks the prefix cache where other programs took memory."""
        if self._loaded is not None:
            self._loaded.scheduler.rest()

    def close(self) -> None:
        """Gives back the model's memory."""
        if self._governor is not None:
            self._governor.close()
            self._governor = None
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def _bind_blas(self) -> None:
        """Once, before MLX is first imported."""
        if self._blas is None:
            self._blas = bind_fast_blas(self._cache)
