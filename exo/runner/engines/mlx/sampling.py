"""How the tokens of requests that decode side by side are chosen.

mlx-lm's GenerationBatch calls each row's logits processors, row by row, then the sampler: once for all rows where they
share one, else row by row. Greedy requests without any wish share `greedy` and have no processors. All others share one
BatchSampler; the last of a request's processors tells it whose row comes next, so that rows of any parameters are drawn
in one call.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.runner.engines.mlx.drawing import GREEDY_BELOW, Draw, draw
from exo.runner.engines.mlx.guided import Guided
from exo.runner.engines.mlx.logprobs import Teller
from exo.runner.engines.mlx.penalties import LogitsProcessor, penalties
from exo.runner.structured.guide import Guide

Sampler = Callable[[mx.array], mx.array]
"""Takes log-probabilities [rows, vocabulary] and returns tokens [rows]."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What chooses one request's tokens."""

    sampler: Sampler
    processors: Sequence[LogitsProcessor]
    teller: Teller | None = None
    """Where logprobs were asked for."""
    guide: Guide | None = None
    """Where there is a constraint."""


class Samplers:
    """Makes what chooses the tokens, for the requests of one model. Belongs to one thread."""

    __slots__ = ("_bytes_of", "_shared", "_telling")

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        """`bytes_of` gives a token's bytes."""
        self._shared = BatchSampler()
        self._bytes_of = bytes_of
        self._telling = mx.new_stream(mx.default_device())

    def forget_step(self) -> None:
        """After a step that broke off between its processors and the sampler."""
        self._shared.forget()

    def for_request(
        self, task_id: TaskId, params: SamplingParams, prompt_tokens: int, guide: Guide | None = None
    ) -> Choice:
        """For one request, whose prompt has so many tokens.

        What is drawn depends on the seed, on the tokens before and on nothing else; without a seed the task's id takes
        its place, which is the same on all ranks.
        """
        row = Row(self._shared, params, _root(task_id, params.seed), prompt_tokens)
        changes = penalties(params, prompt_tokens)
        if guide is not None:
            changes.append(Guided(guide, row.last_token, prompt_tokens))
        teller = None
        if params.logprobs is not None:
            teller = Teller(params.logprobs, self._bytes_of, self._telling, is_changed=bool(changes))
        if params.temperature < GREEDY_BELOW and not changes:
            return Choice(greedy, (), teller)
        first = [] if teller is None or teller.model_logits is None else [teller.model_logits]
        return Choice(self._shared, (*first, *changes, row), teller, guide)


def greedy(logprobs: mx.array) -> mx.array:
    """The likeliest token of each row."""
    return mx.argmax(logprobs, axis=-1)


class BatchSampler:
    """Draws for rows of any parameters. Who they are is told before, in their order."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: deque[tuple[Row, Draw]] = deque()

    def expect(self, row: "Row", how: Draw) -> None:
        """The next row of the coming call, or calls."""
        self._next.append((row, how))

    def forget(self) -> None:
        """No row is expected any more."""
        self._next.clear()

    def __call__(self, logprobs: mx.array) -> mx.array:
        """One token a row [rows]."""
        expected = [self._next.popleft() for _ in range(logprobs.shape[0])]
        tokens = draw(logprobs, [how for _, how in expected])
        for index, (row, _) in enumerate(expected):
            row.drawn = tokens, index
        return tokens


class Row:
    """The last processor of a request: changes nothing, but says how its next token is drawn."""

    __slots__ = ("_params", "_prompt_tokens", "_root", "_sampler", "drawn")

    def __init__(self, sampler: BatchSampler, params: SamplingParams, root: bytes, prompt_tokens: int) -> None:
        self._sampler = sampler
        self._params = params
        self._root = root
        self._prompt_tokens = prompt_tokens
        self.drawn: tuple[mx.array, int] | None = None
        """The tokens of the last draw, and which of them is this request's."""

    def __call__(self, context: mx.array, logits: mx.array) -> mx.array:
        """`logits` as they are."""
        params = self._params
        key = _key(self._root, context.size - self._prompt_tokens)
        self._sampler.expect(self, Draw(key, params.temperature, params.top_k, params.top_p, params.min_p))
        return logits

    def last_token(self) -> int:
        """The token drawn last; waits for it. It does not queue behind the step that is being computed, as anything
        would that is made of the context."""
        assert self.drawn is not None, "no token was drawn yet"
        tokens, index = self.drawn
        return cast(list[int], tokens.tolist())[index]


def _root(task_id: TaskId, seed: int | None) -> bytes:
    """What all keys of a request are made of; no seed is a task's."""
    return b"task" + task_id.encode() if seed is None else b"seed" + seed.to_bytes(8)


def _key(root: bytes, position: int) -> int:
    """64 bits for the token at a position of the answer."""
    return int.from_bytes(hashlib.blake2b(position.to_bytes(8) + root, digest_size=8).digest())
