"""A slice of every layer on every rank, by the model's own `shard`."""

from typing import Any, cast

import mlx.core as mx
from mlx import nn

from exo.domain.model_card import ModelCard
from exo.domain.placement.sharding import tensor_problem
from exo.errors import Fatal
from exo.runner.engines.mlx.weights import whole


def split_tensors(model: nn.Module, card: ModelCard, group: mx.distributed.Group) -> list[nn.Module]:
    """Cuts the weights of `model` to this rank's slice; its layers. Raises Fatal where it does not divide."""
    size = group.size()
    if problem := tensor_problem(card, size):
        raise Fatal(f"{card.model_id} cannot be split by tensor: {problem}")
    try:
        cast(Any, model).shard(group)
    except (AttributeError, ValueError) as error:
        raise Fatal(f"{card.model_id} cannot be split by tensor over {size} runners: {error}") from error
    return whole(model)
