"""Requests that decode side by side, one token each a step: the typed border to mlx-lm's `GenerationBatch`.

`BatchGenerator`, which drives that batch in mlx-lm, also computes the prompts. That part is not used: it pads prompts
that share a slice, it gives every prompt as much of each step, and it takes them strictly in order (see `schedule`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import GenerationBatch, PromptProcessingBatch, StopSequences

from exo.domain.ids import TaskId
from exo.runner.engines.mlx.choosing import guarded
from exo.runner.engines.mlx.layers import LayerCache, total_bytes
from exo.runner.engines.mlx.penalties import LogitsProcessor
from exo.runner.engines.mlx.prefill import Prefill
from exo.runner.engines.mlx.request import Request
from exo.runner.engines.mlx.sampling import Sampler, greedy


class TokenResponse(Protocol):
    """mlx-lm's next token of a request."""

    uid: TaskId
    token: int
    logprobs: mx.array
    """Of all tokens [vocabulary], as the sampler got them."""
    finish_reason: Literal["stop", "length"] | None
    """"stop" comes with the end token itself; "length" with the `max_tokens`th token."""
    prompt_cache: list[LayerCache] | None
    """With the last token: the state, not computed yet, of `all_tokens`."""
    all_tokens: list[int] | None


class Batch(Protocol):
    """What is used of `GenerationBatch`, whose own types are partial."""

    uids: list[TaskId]
    tokens: list[list[int]]
    prompt_cache: list[LayerCache]

    def extend(self, batch: "Batch") -> None: ...
    def next(self) -> list[TokenResponse]: ...
    def filter(self, keep: list[int]) -> None: ...
    def extract_cache(self, idx: int) -> list[LayerCache]: ...


class Decoding:
    """The batch. After an error in `join` or `next` it must be dropped."""

    def __init__(self, model: nn.Module, end_tokens: Iterable[int]) -> None:
        self._model = model
        self._ends = StopSequences([[token] for token in sorted(end_tokens)])
        self._batch = self._empty()
        self._guarded: dict[Sampler, Sampler] = {}
        self.requests: dict[TaskId, Request] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values that the batch holds now."""
        return total_bytes(self._batch.prompt_cache)

    def begin(self, prefills: Sequence[Prefill]) -> Batch:
        """A batch of its own of requests whose prompts are computed but for the last token, computing the first ones.

        It takes their states. An error leaves those be that are in the batch already.
        """
        requests = [prefill.request for prefill in prefills]
        make = cast(Callable[..., Any], PromptProcessingBatch)
        prompts = make(
            self._model,
            uids=[request.task_id for request in requests],
            caches=[prefill.give_layers() for prefill in prefills],
            tokens=[prefill.tokens[:-1].tolist() for prefill in prefills],
            samplers=[self._sampler(request) for request in requests],
            logits_processors=[_processors(request) for request in requests],
            stop_sequences=[self._ends for _ in requests],
            max_tokens=[request.most - len(request.generated) for request in requests],
        )
        return cast(Batch, prompts.generate([[int(prefill.tokens[-1])] for prefill in prefills]))

    def join(self, begun: Batch, requests: Sequence[Request]) -> None:
        """Adds what has begun to those that decode."""
        self._batch.extend(begun)
        self.requests |= {request.task_id: request for request in requests}

    def next(self) -> list[tuple[Request, TokenResponse]]:
        """The next token of each request. Those that end with it are out of the batch then."""
        found = [(self.requests[response.uid], response) for response in self._batch.next()]
        for request, response in found:
            if response.finish_reason is not None:
                del self.requests[request.task_id]
        return found

    def remove(self, task_id: TaskId) -> tuple[list[int], list[LayerCache]]:
        """Drops a request. Gives the tokens that the model has seen of it, and their state, not computed yet."""
        del self.requests[task_id]
        index = self._batch.uids.index(task_id)
        seen = self._batch.tokens[index], self._batch.extract_cache(index)
        self._batch.filter([other for other in range(len(self._batch.uids)) if other != index])
        return seen

    def drop_all(self) -> list[Request]:
        """Makes the batch anew, after an error, and gives the requests that were in it."""
        requests = list(self.requests.values())
        self.requests.clear()
        self._guarded.clear()
        self._batch = self._empty()
        return requests

    def _sampler(self, request: Request) -> Sampler:
        """The same for requests that share one: only then mlx-lm calls it once for all of them."""
        sampler = request.choice.sampler
        return self._guarded.setdefault(sampler, guarded(sampler))

    def _empty(self) -> Batch:
        empty = cast(Callable[[nn.Module, Sampler], object], GenerationBatch.empty)
        return cast(Batch, empty(self._model, greedy))


def _processors(request: Request) -> list[LogitsProcessor]:
    return [guarded(processor, request.task_id) for processor in request.choice.processors]
