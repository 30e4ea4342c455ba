"""A placement as the instance that it becomes."""

from collections.abc import Sequence

from exo.domain.ids import InstanceId, RunnerId
from exo.domain.instance import Instance
from exo.domain.model_card import ModelCard
from exo.domain.placement.request import Placement, Share
from exo.domain.shard import Shard, Sharding


def instance_from(
    placement: Placement, card: ModelCard, instance_id: InstanceId, runner_ids: Sequence[RunnerId]
) -> Instance:
    """The instance that a placement describes. `runner_ids`: unused ones, one for each rank."""
    shards = [
        _shard(share, runner_id, rank, len(placement.shares), placement.sharding, card)
        for rank, (share, runner_id) in enumerate(zip(placement.shares, runner_ids, strict=True))
    ]
    return Instance(
        instance_id=instance_id,
        card=card,
        engine=placement.engine,
        shards=tuple(shards),
        context=placement.context,
        slots=placement.slots,
        backend=placement.backend,
        rdma_devices=placement.rdma_devices,
        coordinators=placement.coordinators,
    )


def _shard(share: Share, runner_id: RunnerId, rank: int, size: int, sharding: Sharding, card: ModelCard) -> Shard:
    return Shard(
        runner_id=runner_id,
        node_id=share.node.node_id,
        rank=rank,
        world_size=size,
        start_layer=share.start_layer,
        end_layer=share.end_layer,
        sharding=sharding,
        card=card,
        host=share.host,
    )
