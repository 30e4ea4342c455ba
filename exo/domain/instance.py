"""One placement of a model: which shard lies where."""

from pydantic import PositiveInt

from exo.domain.base import Frozen
from exo.domain.ids import InstanceId, ModelId, NodeId, RunnerId
from exo.domain.model_card import ModelCard
from exo.domain.shard import Backend, EngineName, Shard


class Instance(Frozen):
    """A model on one or more nodes, in the engine that runs it there."""

    instance_id: InstanceId
    card: ModelCard
    engine: EngineName
    shards: tuple[Shard, ...]
    """In the order of their ranks."""
    context: PositiveInt
    """Tokens that memory was reserved for."""
    slots: PositiveInt
    """Generations that run side by side; the others wait in the master's queue."""
    backend: Backend = "ring"
    """How its ranks talk, where it has several."""
    rdma_devices: tuple[tuple[str, ...], ...] = ()
    """For jaccl: row by row of each rank, the device by which it reaches each rank, such as `rdma_en5`; empty for
    itself."""
    coordinators: tuple[str, ...] = ()
    """For jaccl: the address at which each rank reaches rank 0, which brings them together; its port is rank 0's."""

    @property
    def model_id(self) -> ModelId:
        """The model's full id."""
        return self.card.model_id

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """Its nodes, by rank."""
        return tuple(shard.node_id for shard in self.shards)

    @property
    def runner_ids(self) -> tuple[RunnerId, ...]:
        """Its runners, by rank."""
        return tuple(shard.runner_id for shard in self.shards)
