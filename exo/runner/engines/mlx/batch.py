"""Continuous batching with mlx-lm: the typed border to its `BatchGenerator`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import BatchGenerator

from exo.runner.engines.mlx.penalties import LogitsProcessor
from exo.runner.engines.mlx.sampling import Choice, Sampler

DECODE_BATCH = 32
"""Requests that decode side by side; more wait. mlx-lm's own default."""

PREFILL_PROMPTS = 8
"""Prompts that share a slice of prefill."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Tokens of prefill in one step, over all prompts together."""

    idle: int
    """While nothing decodes, so that nobody waits for the slice to end."""
    busy: int
    """While requests decode: they stand still until the slice is computed. More where more wait than decode."""

    def step(self, prompts: int, decoding: int) -> int:
        """Tokens of each prompt in the next step, of `prompts` that share it, while so many requests decode."""
        tokens = self.idle if decoding == 0 else min(self.idle, self.busy * max(1, prompts // decoding))
        return max(1, tokens // max(1, prompts))


GPU_SLICES = Slices(idle=4096, busy=2048)
CPU_SLICES = Slices(idle=256, busy=64)
"""On two CPU cores (135 M parameters, float32) slices of 32, 64, 128 and 256 tokens gave 141, 173, 188 and 189 tokens a
second; one of 64 took 0.37 s. Sharing a slice makes it no quicker, but brings requests that come together to decoding
together: eight short ones take 3 steps then, and 16 one after the other."""


class PromptResponse(Protocol):
    """mlx-lm's report on a prompt in work."""

    uid: int
    progress: tuple[int, int]
    """Tokens done, of how many."""
    end_of_prompt: bool


class TokenResponse(Protocol):
    """mlx-lm's next token of a request."""

    uid: int
    token: int
    logprobs: mx.array
    """[vocabulary], of what the processors left of the logits."""
    finish_reason: Literal["stop", "length"] | None
    """"stop" comes with the end token itself; "length" with the `max_tokens`th token."""


class _Generator(Protocol):
    """What is used of `BatchGenerator`, whose own types are partial."""

    prefill_step_size: int
    """Tokens of each prompt in a step; read at each."""

    def insert(
        self,
        prompts: list[list[int]],
        *,
        max_tokens: list[int],
        samplers: list[Sampler],
        logits_processors: list[list[LogitsProcessor]],
    ) -> list[int]: ...
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
        self._slices = CPU_SLICES if on_cpu else GPU_SLICES
        self._prefilling: set[int] = set()
        self._decoding: set[int] = set()
        self._generator = cast(Callable[..., _Generator], cast(Any, BatchGenerator))(
            model,
            stop_tokens=[[token] for token in sorted(end_tokens)],
            completion_batch_size=DECODE_BATCH,
            prefill_batch_size=PREFILL_PROMPTS,
            prefill_step_size=self._slices.idle,
        )

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values now held."""
        return self._generator.prompt_cache_nbytes

    def insert(self, prompt: Sequence[int], max_tokens: int, choice: Choice) -> int:
        """Queues a request."""
        uid = self._generator.insert(
            [list(prompt)],
            max_tokens=[max_tokens],
            samplers=[choice.sampler],
            logits_processors=[list(choice.processors)],
        )[0]
        self._prefilling.add(uid)
        return uid

    def next(self) -> tuple[list[PromptResponse], list[TokenResponse]]:
        """One decode step, then a slice of prefill."""
        prompts = min(len(self._prefilling), PREFILL_PROMPTS)
        self._generator.prefill_step_size = self._slices.step(prompts, len(self._decoding))
        prompt_responses, token_responses = self._generator.next()
        begun = {response.uid for response in prompt_responses if response.end_of_prompt}
        self._prefilling -= begun
        self._decoding |= begun
        self._decoding -= {response.uid for response in token_responses if response.finish_reason is not None}
        return prompt_responses, token_responses

    def remove(self, uids: Sequence[int]) -> None:
        """Drops requests, wherever they stand. Unknown ones are ignored."""
        self._generator.remove(list(uids))
        self._prefilling -= set(uids)
        self._decoding -= set(uids)

    def close(self) -> None:
        """Waits for what is being computed and gives back the wired memory, the keys and the values."""
        mx.synchronize(self._generator.stream)
        self._generator.close()
        del self._generator
        mx.clear_cache()
