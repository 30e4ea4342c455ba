"""A part of a model that one runner holds."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from exo.domain.base import Frozen
from exo.domain.ids import NodeId, RunnerId
from exo.domain.model_card import ModelCard

Sharding = Literal["pipeline", "tensor"]
EngineName = Literal["mlx", "scripted"]


class Shard(Frozen):
    """Layers `start_layer <= layer < end_layer` of a model (pipeline), or a slice of every layer (tensor)."""

    runner_id: RunnerId
    node_id: NodeId
    rank: NonNegativeInt
    world_size: PositiveInt
    start_layer: NonNegativeInt
    end_layer: PositiveInt
    sharding: Sharding
    card: ModelCard
