"""The bytes that a model needs, and those that each node can give."""

from collections.abc import Set
from dataclasses import dataclass

from exo.domain import limits
from exo.domain.ids import InstanceId, NodeId
from exo.domain.instance import Instance
from exo.domain.model_card import ModelCard
from exo.domain.placement.engines import why_not_on
from exo.domain.placement.gpus import gpu_bytes, machines_of
from exo.domain.placement.request import PlacementRequest
from exo.domain.shard import EngineName, Shard, Sharding
from exo.domain.state import Node, State, names_of

NOBODY: frozenset[InstanceId] = frozenset()


@dataclass(frozen=True, slots=True)
class Room:
    """What a node can give a model."""

    node: Node
    name: str
    """Of its machine, as people tell it from the others."""
    why_not: str
    """Why it cannot run the model, as what follows on its name; empty: it has what it needs, or a way to get it."""
    usable: int
    """Bytes that count: all of its memory where nothing is placed, else what is free of it and promised to nobody. For
    vLLM on GPUs, of theirs."""
    free: int
    """Bytes that are free now; of nodes that are alike otherwise, the one with most wins."""
    held: float
    """The part of the model that is on its disk, 0 to 1."""

    @property
    def can_run(self) -> bool:
        """Whether it could run the model if it fitted."""
        return not self.why_not


def needed_bytes(card: ModelCard, context: int, engine: EngineName = "mlx") -> int:
    """Bytes that a model needs with `context` tokens of keys and values, headroom included; rounded up."""
    return -(-(card.weight_bytes + card.kv_bytes(context)) * headroom_percent(engine) // 100)


def headroom_percent(engine: EngineName) -> int:
    """Percent of weights and KV cache that must fit."""
    return limits.HEADROOM_PERCENT_VLLM if engine == "vllm" else limits.HEADROOM_PERCENT


def share_bytes(needed: int, sharding: Sharding, ranks: int, layers: int, all_layers: int) -> int:
    """Of the bytes that a model needs, those of a rank with so many of its layers; rounded up."""
    return -(-needed // ranks) if sharding == "tensor" else -(-needed * layers // all_layers)


def promised_bytes(instance: Instance, node_id: NodeId) -> int:
    """Bytes that an instance was promised on a node."""
    needed = needed_bytes(instance.card, instance.context, instance.engine)
    return sum(_part_of(needed, shard) for shard in instance.shards if shard.node_id == node_id)


def _part_of(needed: int, shard: Shard) -> int:
    layers = shard.end_layer - shard.start_layer
    return share_bytes(needed, shard.sharding, shard.world_size, layers, shard.card.layers)


def context_of(request: PlacementRequest) -> int:
    """Tokens to reserve memory for: those asked for, else a default, and never more than the model has."""
    return min(request.context or limits.CONTEXT_TOKENS, request.card.context)


def rooms(state: State, request: PlacementRequest, leaving: Set[InstanceId] = NOBODY) -> list[Room]:
    """What each node can give, by node id, once the instances in `leaving` are gone."""
    names = names_of(state.nodes.values())
    return [_room(state, node, names[node_id], request, leaving) for node_id, node in sorted(state.nodes.items())]


def _room(state: State, node: Node, name: str, request: PlacementRequest, leaving: Set[InstanceId]) -> Room:
    card = request.card
    holding = node.holdings.get(card.model_id)
    of_gpus = gpu_bytes(node, request.runs_in, card)
    machines = machines_of(node, request.runs_in)
    whole = (_whole(node) if of_gpus is None else of_gpus) * machines
    promised = _promised(state, node, leaving, of_gpus is not None)
    left = whole - promised.staying
    # State does not know what else is in a GPU's own memory.
    available = node.available_bytes * machines if of_gpus is None else left
    # What leaves is still in memory: nothing can be said of what will be free, but of what is promised.
    beside = left if promised.leaves else min(available, left)
    return Room(
        node=node,
        name=name,
        why_not=why_not_on(node, card, request.runs_in),
        usable=max(0, beside) if promised.stays else whole,
        free=max(0, beside) if promised.stays else available,
        held=0.0 if holding is None else 1.0 if holding.status == "ready" else holding.held,
    )


def _whole(node: Node) -> int:
    """Bytes that models may fill on a node that has nothing else to do."""
    unified = any(gpu.unified for gpu in node.facts.gpus)
    return int(node.facts.memory_bytes * (limits.UNIFIED_SHARE if unified else 1.0))


@dataclass(frozen=True, slots=True)
class _Promised:
    staying: int
    """Bytes that the instances which stay on a node were promised."""
    stays: bool
    leaves: bool


def _promised(state: State, node: Node, leaving: Set[InstanceId], on_gpus: bool) -> _Promised:
    """Of what is in the same memory: the GPUs' own, or the machine's."""
    placed = [
        one
        for one in state.instances.values()
        if node.node_id in one.node_ids and (gpu_bytes(node, one.engine, one.card) is not None) == on_gpus
    ]
    staying = [one for one in placed if one.instance_id not in leaving]
    return _Promised(
        staying=sum(promised_bytes(one, node.node_id) for one in staying),
        stays=bool(staying),
        leaves=len(staying) < len(placed),
    )
