"""A prompt while it is computed, slice by slice, on a state of its own.

Mostly one prompt at a time, as mlx-lm's `generate_step` does it: prompts of different lengths that share a pass have to
be padded, of which state spaces and windows must be kept free. Several short ones that are computed to their ends may
share one where every layer keeps all tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import PromptProcessingBatch

from exo.runner.engines.mlx.handing_out import HandingOut
from exo.runner.engines.mlx.kept import Kept, Snapshot, snapshot
from exo.runner.engines.mlx.layers import LayerCache, evaluate, shared_copy, total_bytes
from exo.runner.engines.mlx.prefix_cache import Tokens, as_tokens
from exo.runner.engines.mlx.request import Request


@dataclass(slots=True, eq=False)
class Prefill:
    """All tokens of a request but the last, which decoding begins with."""

    request: Request
    tokens: Tokens = field(init=False)
    layers: list[LayerCache] | None = None
    """The state after `done` tokens; None before it began."""
    done: int = 0
    cached: int = 0
    """Tokens that did not have to be computed."""
    stops: set[int] = field(default_factory=set[int])
    """Lengths at which the state is to be kept for others."""
    snapshots: dict[int, Snapshot] = field(default_factory=dict[int, Snapshot])
    handing: HandingOut | None = field(init=False)
    """Where the state is wanted elsewhere."""
    waits_for: "tuple[Prefill, int] | None" = None
    """Before it begins: another prompt, and so many tokens that the other is to compute of what both begin with."""

    def __post_init__(self) -> None:
        self.tokens = as_tokens(self.request.tokens)
        self.handing = None if self.request.sink is None else HandingOut(self.request.sink)

    @property
    def begun(self) -> bool:
        """Whether it has a state."""
        return self.layers is not None

    @property
    def end(self) -> int:
        """Where it ends: one token before the prompt does."""
        return len(self.tokens) - 1

    @property
    def left(self) -> int:
        """Tokens that are not computed yet."""
        return self.end - self.done

    @property
    def until_stop(self) -> int:
        """Tokens to the next stop, or to the end."""
        return min((stop for stop in self.stops if stop > self.done), default=self.end) - self.done

    @property
    def nbytes(self) -> int:
        """Bytes of its state."""
        return total_bytes(self.layers or [])

    def begin(self, layers: list[LayerCache], cached: int) -> None:
        """Starts from a state of its first `cached` tokens."""
        self.layers = layers
        self.done = self.cached = cached
        self.waits_for = None

    def advance(self, model: nn.Module, count: int) -> None:
        """Computes `count` more tokens, and hands out their state, and what came before them, where that is wanted."""
        assert self.layers is not None
        if count:
            self._hand_out()
            slice_ = mx.array(self.tokens[self.done : self.done + count].tolist())
            cast(Callable[..., object], model)(slice_[None], cache=self.layers)
            self.done += count
            self._hand_out()
            evaluate(self.layers)

    def hand_out_rest(self) -> None:
        """Hands out what other layers than those with keys and values of all tokens keep at the end."""
        assert self.layers is not None
        if self.handing is not None:
            self.handing.hand_out_rest(self.layers, self.done)

    def _hand_out(self) -> None:
        if self.handing is not None and self.layers is not None:
            self.handing.hand_out(self.layers, self.done)

    def keep_snapshot(self) -> None:
        """Remembers the state as it is now, for `kept`."""
        assert self.layers is not None
        self.snapshots[self.done] = snapshot(self.layers)

    def kept(self) -> Kept:
        """The state so far, to be kept for others."""
        assert self.layers is not None
        return Kept(self.done, [shared_copy(layer) for layer in self.layers], dict(self.snapshots))

    def give_layers(self) -> list[LayerCache]:
        """Hands the state over, so that it is gone when whoever took it lets it go."""
        assert self.layers is not None
        layers, self.layers = self.layers, None
        return layers


def compute_together(model: nn.Module, prefills: Sequence[Prefill]) -> None:
    """Computes prompts to their ends in one pass. Where that fails they are as before."""
    make = cast(Callable[..., Any], PromptProcessingBatch)
    batch = make(
        model,
        uids=list(range(len(prefills))),
        caches=[prefill.layers for prefill in prefills],
        prefill_step_size=max(prefill.left for prefill in prefills),
    )
    batch.prompt([prefill.tokens[prefill.done : -1].tolist() for prefill in prefills])
    for index, prefill in enumerate(prefills):
        layers = cast(list[LayerCache], batch.extract_cache(index))
        evaluate(layers)
        prefill.layers, prefill.done = layers, prefill.end
