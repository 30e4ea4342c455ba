"""Cards, shards, nodes and instances for tests: only what a test is about need be said."""

from collections.abc import Iterable, Sequence

from exo.domain.ids import NodeId, RunnerId
from exo.domain.instance import Instance
from exo.domain.model_card import ModelCard
from exo.domain.node import Holding, NodeFacts
from exo.domain.shard import Shard, Sharding
from exo.domain.state import Node, State


def card(model_id: str = "maker/model", **fields: object) -> ModelCard:
    """A small llama, or one of which `fields` say something else."""
    sizes = {"layers": 4, "hidden_size": 64, "heads": 4, "kv_heads": 2, "head_dim": 16}
    rest = {"family": "llama", "weight_bytes": 1000, "context": 2048}
    return ModelCard.model_validate({"model_id": model_id, **sizes, **rest, **fields})


def whole(card: ModelCard, runner_id: str = "runner", node_id: str = "node") -> Shard:
    """The shard that is the whole model."""
    place = {"runner_id": runner_id, "node_id": node_id, "rank": 0, "world_size": 1}
    return Shard.model_validate(
        {**place, "start_layer": 0, "end_layer": card.layers, "sharding": "pipeline", "card": card}
    )


def shards(whole: Shard, sharding: Sharding, ranks: int, split: Sequence[int] = ()) -> list[Shard]:
    """The shards of a model by rank: runner-0 on node-0, and so on; in a pipeline rank 0 has the last layers.

    `split` says how many layers each rank of a pipeline holds; evenly where it is empty.
    """
    layers = whole.card.layers
    counts = list(split) or [layers // ranks + (rank < layers % ranks) for rank in range(ranks)]
    found: list[Shard] = []
    end = layers
    for rank, count in enumerate(counts):
        start, last = (end - count, end) if sharding == "pipeline" else (0, layers)
        end = start
        update = {"rank": rank, "world_size": ranks, "start_layer": start, "end_layer": last, "sharding": sharding}
        ids = {"runner_id": RunnerId(f"runner-{rank}"), "node_id": NodeId(f"node-{rank}")}
        found.append(whole.model_copy(update={**update, **ids}))
    return found


def instance(*shards: Shard, instance_id: str = "instance", **fields: object) -> Instance:
    """A model where its shards are."""
    one = shards[0].card
    rest = {"card": one, "engine": "mlx", "shards": shards, "context": one.context, "slots": 8}
    return Instance.model_validate({"instance_id": instance_id, **rest, **fields})


def facts(hostname: str = "host", **fields: object) -> NodeFacts:
    """What a Linux machine with 10 GB is."""
    machine = {"system": "linux", "chip": "x", "cores": 8, "memory_bytes": 10**10, "disk_bytes": 10**12}
    return NodeFacts.model_validate({"hostname": hostname, **machine, "version": "0.1.0", **fields})


def node(node_id: str = "node", *holdings: Holding, **fields: object) -> Node:
    """A node, and the models that it has."""
    held = {holding.card.model_id: holding for holding in holdings}
    rest = {"boot_id": "boot", "facts": facts(), "available_bytes": 10**9, "holdings": held, "joined_at": 0}
    return Node.model_validate({"node_id": node_id, **rest, **fields})


def state(nodes: Iterable[Node] = (), instances: Iterable[Instance] = (), **fields: object) -> State:
    """A cluster of these."""
    parts = {
        "nodes": {one.node_id: one for one in nodes},
        "instances": {one.instance_id: one for one in instances},
    }
    return State.model_validate({**parts, **fields})
