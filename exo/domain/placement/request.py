"""What is asked of placement, and what it answers."""

from dataclasses import dataclass
from typing import Literal

from exo.domain.ids import NodeId
from exo.domain.model_card import ModelCard
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import Node

RefusedCode = Literal[
    "no_nodes",
    "node_not_found",
    "no_engine",
    "not_enough_nodes",
    "vllm_one_node_only",
    "tensor_shape",
    "too_few_layers",
    "no_ring",
    "no_rdma",
    "insufficient_memory",
    "not_offered",
]
"""Why a model has no place. `not_offered`: the engine does not read its weights."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A model and what it is to be able to do. None: the default."""

    card: ModelCard
    context: int | None = None
    slots: int | None = None
    engine: EngineName | None = None
    """None: the best that nodes have; MLX where none has any."""
    sharding: Sharding = "pipeline"
    """Of no matter where one node is enough."""
    backend: Backend = "ring"
    min_nodes: int = 1
    node_ids: tuple[NodeId, ...] = ()
    """Nodes that must be among those chosen."""

    @property
    def nodes_least(self) -> int:
        """The fewest nodes that it is content with."""
        return max(1, self.min_nodes, len(set(self.node_ids)))

    @property
    def runs_in(self) -> EngineName:
        """The engine that is meant."""
        if self.engine is not None:
            return self.engine
        return "scripted" if self.card.family == "scripted" else "mlx"


@dataclass(frozen=True, slots=True)
class Share:
    """What one node gets: the layers `start_layer <= layer < end_layer`, or with tensor sharding a slice of all."""

    node: Node
    start_layer: int
    end_layer: int
    host: str = ""
    """The address at which the rank before it in the ring reaches this one."""
    needed: int = 0
    """Bytes, headroom included."""

    @property
    def layers(self) -> int:
        """How many they are."""
        return self.end_layer - self.start_layer


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes that won, by rank, and the figures that they won by."""

    shares: tuple[Share, ...]
    engine: EngineName
    sharding: Sharding
    backend: Backend
    context: int
    slots: int
    reason: str
    rdma_devices: tuple[tuple[str, ...], ...] = ()
    """As in `Instance`."""
    coordinators: tuple[str, ...] = ()
    """As in `Instance`."""

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """Its nodes, by rank."""
        return tuple(share.node.node_id for share in self.shares)


@dataclass(frozen=True, slots=True)
class Refused:
    """No node, and no group of nodes, can take the model."""

    code: RefusedCode
    reason: str
    may_pass: bool = False
    """Whether there would be a place if other instances made room, or once a node is there."""
    lacks_links: bool = False
    """Whether some nodes would be enough together if measured links joined them."""
