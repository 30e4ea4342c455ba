"""What of a model a rank holds: the choice between the ways to split one."""

import inspect
from typing import Any, cast

import mlx.core as mx
from mlx import nn

from exo.domain.shard import Shard
from exo.errors import Fatal
from exo.runner.engines.mlx.sharding.pipeline import split_stack
from exo.runner.engines.mlx.sharding.stack import find_stack
from exo.runner.engines.mlx.sharding.tensor import split_tensors
from exo.runner.engines.mlx.weights import whole


def cut(model: nn.Module, shard: Shard, group: mx.distributed.Group) -> list[nn.Module]:
    """Makes `model`, whose weights are not read yet, this rank's part of it; the layers that it holds.

    Raises Fatal where the model, or this division of it, cannot be split. All ranks call it together.
    """
    if shard.sharding == "tensor":
        return split_tensors(model, shard.card, group)
    stack = find_stack(model)
    split = _agreed_split(shard, len(stack.layers), group)
    if not _splits_itself(stack.owner):
        return split_stack(model, stack, shard.start_layer, shard.end_layer, group)
    cast(Any, stack.owner).pipeline(group, split=split)
    return whole(model)


def _splits_itself(owner: nn.Module) -> bool:
    """Whether mlx-lm has a pipeline of its own for the model, with a choice of layers for each rank."""
    pipeline = getattr(owner, "pipeline", None)
    return pipeline is not None and "split" in inspect.signature(pipeline).parameters


def _agreed_split(shard: Shard, layers: int, group: mx.distributed.Group) -> list[int]:
    """How many layers each rank holds, by rank. Raises Fatal where the ranks do not hold each layer once."""
    mine = mx.array([shard.start_layer, shard.end_layer])
    gathered = cast(list[list[int]], mx.distributed.all_gather(mine[None], group=group).tolist())
    borders = [end for _, end in gathered] + [0]
    starts = [start for start, _ in gathered]
    if borders[0] != layers or starts != borders[1:]:
        raise Fatal(f"the ranks hold the layers {gathered}, which is not each of {layers} once, the last on rank 0")
    return [end - start for start, end in gathered]
