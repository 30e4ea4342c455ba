"""How many requests a model decodes side by side."""

import logging
from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import generation_stream

from exo.domain.limits import SLOTS
from exo.errors import Fatal
from exo.runner.engines.mlx.failures import STEP_ERRORS
from exo.runner.engines.mlx.layers import LayerCache, can_batch, new_layers

logger = logging.getLogger(__name__)

WIDTH = SLOTS
"""Of models that can: what the master sends an instance at once. mlx-lm's own default, too."""


def width(model: nn.Module) -> int:
    """WIDTH, or 1 where mlx-lm's code for this family takes one sequence at a time (Gemma 2's attention, say).

    Tries a step for two. Nothing is computed: MLX only notes operations until somebody evaluates, and arrays that do
    not fit each other are refused while it does. So it costs milliseconds, also before the weights are read, and every
    rank finds the same. Raises Fatal where mlx-lm cannot join states at all: its batches, of one request too, do.
    """
    run = cast(Callable[..., object], model)
    token = mx.array([[0]])
    with mx.stream(generation_stream):
        one = new_layers(model)
        if not all(map(can_batch, one)):
            raise Fatal("mlx-lm cannot generate for several requests at once with this family of models")
        try:
            run(token, cache=one)
            run(mx.concatenate([token, token]), cache=[_twice(layer) for layer in one])
        except STEP_ERRORS as error:
            logger.warning("requests for this model are computed one after the other: a step for two fails: %s", error)
            return 1
    return WIDTH


def _twice(layer: LayerCache) -> LayerCache:
    both: Sequence[LayerCache] = [layer, layer]
    return layer.merge(both)
