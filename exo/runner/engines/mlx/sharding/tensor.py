"""A slice of every layer on every rank, by the model's own `shard`."""

from typing import Any, cast

import mlx.core as mx
from mlx import nn

from exo.domain.model_card import ModelCard
from exo.errors import Fatal


def split_tensors(model: nn.Module, card: ModelCard, group: mx.distributed.Group) -> list[nn.Module]:
    """Cuts the weights of `model` to this rank's slice; its layers. Raises Fatal where it does not divide."""
    size = group.size()
    if not hasattr(model, "shard"):
        raise Fatal(f"models of the family {card.family} cannot be split by tensor: place it with pipeline sharding")
    if size not in (fitting := fitting_sizes(card)):
        raise Fatal(
            f"{card.model_id} has {card.heads} heads and {card.kv_heads} heads of keys and values, which do not divide "
            f"over {size} runners; these numbers of runners would do: {', '.join(map(str, fitting))}"
        )
    try:
        cast(Any, model).shard(group)
    except ValueError as error:
        raise Fatal(f"{card.model_id} cannot be split by tensor over {size} runners: {error}") from error
    return cast(list[nn.Module], cast(Any, model).layers)


def fitting_sizes(card: ModelCard) -> list[int]:
    """Numbers of ranks over which heads, heads of keys and values, and hidden size divide, from 1."""
    sizes = range(1, card.kv_heads + 1)
    return [n for n in sizes if card.heads % n == 0 and card.kv_heads % n == 0 and card.hidden_size % n == 0]
