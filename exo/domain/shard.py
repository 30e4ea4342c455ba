"""A part of a model that one runner holds."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from exo.domain.base import Frozen
from exo.domain.ids import NodeId, RunnerId
from exo.domain.model_card import ModelCard

Sharding = Literal["pipeline", "tensor"]
Backend = Literal["ring", "jaccl"]
"""How ranks talk, by mlx.distributed's names: TCP from neighbour to neighbour, or RDMA over Thunderbolt 5."""
EngineName = Literal["mlx", "vllm", "scripted"]


class Shard(Frozen):
    """Layers `start_layer <= layer < end_layer` of a model (pipeline), or a slice of every layer (tensor).

    In a pipeline rank 0 holds the last layers, as in mlx-lm: it samples, and publishes what comes out.
    """

    runner_id: RunnerId
    node_id: NodeId
    rank: NonNegativeInt
    world_size: PositiveInt
    start_layer: NonNegativeInt
    end_layer: PositiveInt
    sharding: Sharding
    card: ModelCard
    host: str = ""
    """The address at which the rank before it in the ring reaches this one, as measured; empty where there is one
    rank."""
