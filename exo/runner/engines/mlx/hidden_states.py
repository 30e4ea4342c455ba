"""What a model's last layer gives for each token, after the last norm and before it becomes logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import generation_stream

from exo.errors import Fatal
from exo.runner.engines.mlx.layers import LayerCache, new_layers
from exo.runner.engines.mlx.sharding.stack import find_stack

Run = Callable[..., mx.array]


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """The part of a model that all tokens pass through before they become logits."""

    module: nn.Module
    width: int
    """Numbers of each token."""
    together: bool
    """Whether several texts may share a pass, and need no state for it. It is enough to pad them at their ends, since
    no token looks at those after it."""

    def of(self, tokens: mx.array, layers: Sequence[LayerCache] | None) -> mx.array:
        """The outputs [texts, tokens, width], float32, of `tokens` [texts, tokens] that follow a state."""
        return cast(Run, self.module)(tokens, cache=layers).astype(mx.float32)


def find_hidden_states(model: nn.Module, width: int) -> HiddenStates | None:
    """That part of `model`; None where it has none that gives `width` numbers a token.

    In all of mlx-lm's families it is the module that owns the layers: the norm is in it, the head is not. It is tried
    without computing anything, which takes milliseconds, also before the weights are read.
    """
    try:
        owner = find_stack(model).owner
    except Fatal:
        return None
    with mx.stream(generation_stream):
        if not _gives(owner, 1, new_layers(model), width):
            return None
        return HiddenStates(owner, width, together=_gives(owner, 2, None, width))


def _gives(module: nn.Module, texts: int, layers: Sequence[LayerCache] | None, width: int) -> bool:
    try:
        output = cast(Run, module)(mx.zeros((texts, 2), mx.int32), cache=layers)
    except Exception:  # of any kind: it is some family's code, and this is not what it is made for
        return False
    return isinstance(cast(object, output), mx.array) and output.shape == (texts, 2, width)
