"""Continuous batching with mlx-lm: the typed border to its `BatchGenerator`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import BatchGenerator

from exo.runner.engines.mlx.sampling import Sampler

DECODE_BATCH = 32
"""Requests that decode side by side; more wait. mlx-lm's own default."""

GPU_PREFILL = (512, 8)
CPU_PREFILL = (64, 1)
"""Tokens of each prompt per step, and prompts per step. Running requests stand still while a slice is computed. On two
CPU cores (135 M parameters, float32) slices of 32, 64, 128 and 256 tokens gave 141, 173, 188 and 189 tokens a second;
one of 64 took 0.37 s. Several prompts at once gain nothing there."""


class PromptResponse(Protocol):
    """mlx-lm's report on a prompt in work."""

    uid: int
    progress: tuple[int, int]
    """Tokens done, of how many."""


class TokenResponse(Protocol):
    """mlx-lm's next token of a request."""

    uid: int
    token: int
    finish_reason: Literal["stop", "length"] | None
    """"stop" comes with the end token itself; "length" with the `max_tokens`th token."""


class _Generator(Protocol):
    """What is used of `BatchGenerator`, whose own types are partial."""

    def insert(self, prompts: list[list[int]], *, max_tokens: list[int], samplers: list[Sampler]) -> list[int]: ...
    def next(self) -> tuple[list[PromptResponse], list[TokenResponse]]: ...
    def remove(self, uids: list[int]) -> object: ...
    def close(self) -> None: ...
    @property
    def stream(self) -> mx.ThreadLocalStream: ...
    @property
    def prompt_cache_nbytes(self) -> int: ...


class Batch:
    """Requests that are computed together on one model. A request is known by the number that `insert` gave it."""

    def __init__(self, model: nn.Module, end_tokens: Iterable[int]) -> None:
        on_cpu = mx.default_device().type == mx.DeviceType.cpu
        step, prompts = CPU_PREFILL if on_cpu else GPU_PREFILL
        self._generator = cast(Callable[..., _Generator], cast(Any, BatchGenerator))(
            model,
            stop_tokens=[[token] for token in sorted(end_tokens)],
            completion_batch_size=DECODE_BATCH,
            prefill_batch_size=prompts,
            prefill_step_size=step,
        )

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values now held."""
        return self._generator.prompt_cache_nbytes

    def insert(self, prompt: Sequence[int], max_tokens: int, sampler: Sampler) -> int:
        """Queues a request."""
        return self._generator.insert([list(prompt)], max_tokens=[max_tokens], samplers=[sampler])[0]

    def next(self) -> tuple[list[PromptResponse], list[TokenResponse]]:
        """One decode step, then a slice of prefill."""
        return self._generator.next()

    def remove(self, uids: Sequence[int]) -> None:
        """Drops requests, wherever they stand. Unknown ones are ignored."""
        self._generator.remove(list(uids))

    def close(self) -> None:
        """Waits for what is being computed and gives back the wired memory, the keys and the values."""
        mx.synchronize(self._generator.stream)
        self._generator.close()
        del self._generator
        mx.clear_cache()
