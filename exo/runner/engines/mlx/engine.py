"""The engine on MLX. Nothing of MLX is imported before `load`: a BLAS has to be bound first (see `blas`), and what
MLX makes belongs to the thread that made it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard
from exo.errors import Fatal, Rejected
from exo.runner.engines.admission import check_memory, completion_limit, reserved_tokens
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, Progress, Tokenizer, TokenOutput
from exo.runner.engines.mlx.blas import bind_fast_blas
from exo.runner.tokenizer import HuggingFaceTokenizer

if TYPE_CHECKING:
    from exo.runner.engines.mlx.loaded import Loaded

FAILURES_LIMIT = 3
"""Requests that may fail one after the other, with no token in between, before the engine itself counts as broken."""


class MlxEngine:
    """One whole model, on Metal, CUDA or the CPU, whichever MLX computes on here."""

    def __init__(self, cache: Path) -> None:
        """`cache` is a folder for files that can be made again."""
        self._cache = cache
        self._loaded: Loaded | None = None
        self._uids: dict[TaskId, int] = {}
        self._tasks: dict[int, TaskId] = {}
        self._reserved: dict[TaskId, int] = {}
        self._failures = 0

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        return self._model.tokenizer

    @property
    def in_flight(self) -> int:
        """Requests submitted and not over."""
        return len(self._uids)

    @property
    def _model(self) -> Loaded:
        if self._loaded is None:
            raise Fatal("the engine holds no model")
        return self._loaded

    def load(self, shard: Shard, folder: Path, on_progress: Progress) -> None:
        """Reads the weights layer by layer. Raises Fatal for a shard that is not the whole model."""
        if shard.world_size != 1:
            raise Fatal("the mlx engine does not split a model over several runners yet")
        tokenizer = HuggingFaceTokenizer(folder)
        bind_fast_blas(self._cache)
        from exo.runner.engines.mlx.loaded import Loaded  # noqa: PLC0415  (imports MLX)

        self._loaded = Loaded(shard.card, tokenizer, folder, on_progress)

    def submit(self, task_id: TaskId, prompt: Sequence[int], params: SamplingParams) -> None:
        """Queues a request. Raises Rejected as the protocol says."""
        model = self._model
        if task_id in self._uids:
            raise Rejected(f"task {task_id} is running already", code="duplicate_task")
        limit = completion_limit(len(prompt), params.max_tokens, model.card.context)
        reserved = reserved_tokens(len(prompt), params.max_tokens, limit)
        check_memory(model.missing_bytes([*self._reserved.values(), reserved]), model.free_bytes())
        choice = model.samplers.for_request(task_id, params, len(prompt))
        uid = model.batch.insert(prompt, limit, choice)
        self._uids[task_id] = uid
        self._tasks[uid] = task_id
        self._reserved[task_id] = reserved

    def step(self) -> list[EngineOutput]:
        """One decode step for all, and a slice of prefill.

        An error while a single request is in flight is that request's: it fails, and the batch is made anew. With
        several nobody can tell whose it is: it is raised. So it is when one request after the other fails.
        """
        if not self._uids:
            return []
        try:
            prompts, tokens = self._model.batch.next()
        except (RuntimeError, ValueError, MemoryError) as error:
            return [self._failed(error)]
        outputs: list[EngineOutput] = [PrefillOutput(self._tasks[seen.uid], *seen.progress) for seen in prompts]
        outputs += [TokenOutput(self._tasks[seen.uid], seen.token, seen.finish_reason) for seen in tokens]
        if tokens:
            self._failures = 0
            self._forget(self._tasks[seen.uid] for seen in tokens if seen.finish_reason is not None)
        return outputs

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests at once."""
        known = self._uids.keys() & set(task_ids)
        if known:
            self._model.batch.remove([self._uids[task_id] for task_id in known])
            self._forget(known)

    def close(self) -> None:
        """Gives back the model's memory."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None
        self._uids.clear()
        self._tasks.clear()
        self._reserved.clear()

    def _failed(self, error: Exception) -> FailedOutput:
        """The one request in flight, failed. Raises `error` where it is not that request's alone."""
        self._failures += 1
        if len(self._uids) > 1 or self._failures >= FAILURES_LIMIT:
            raise error
        (task_id,) = self._uids
        self._forget([task_id])
        self._model.renew_batch()
        return FailedOutput(task_id, "engine_error", f"{type(error).__name__}: {error}")

    def _forget(self, task_ids: Iterable[TaskId]) -> None:
        for task_id in task_ids:
            del self._tasks[self._uids.pop(task_id)]
            del self._reserved[task_id]
        if not self._uids:
            self._model.release_cache()
