"""Where a model goes, and why there."""

from collections.abc import Set
from dataclasses import dataclass

from immutables import Map

from exo.domain import limits
from exo.domain.ids import InstanceId, NodeId, RunnerId
from exo.domain.instance import Instance
from exo.domain.model_card import ModelCard
from exo.domain.shard import EngineName, Shard
from exo.domain.state import Node, State


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A model and what it is to be able to do. None: the default."""

    card: ModelCard
    context: int | None = None
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The node that won, and the figures that it won by."""

    node: Node
    engine: EngineName
    context: int
    slots: int
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No node can take the model."""

    reason: str
    may_pass: bool
    """Whether it would fit if other instances made room."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    node: Node
    engine: EngineName | None
    usable: int
    empty: int
    """Bytes usable if nothing else were placed there."""
    reserved: int
    """Bytes that the instances there were promised."""
    ready: bool


def place(state: State, request: PlacementRequest) -> Placement | Refused:
    """The best node for a model, or why none can take it.

    Needed are (weights + keys and values for the context) x 1.1. Usable is a node's memory where nothing is placed,
    else what is free of it. Of the nodes with room, those that hold the model already win, then the most free memory.
    """
    card = request.card
    context = min(request.context or limits.CONTEXT_TOKENS, card.context)
    needed = needed_bytes(card, context)
    candidates = [_candidate(state, node, card) for _, node in sorted(state.nodes.items())]
    able = [candidate for candidate in candidates if candidate.engine is not None]
    fitting = [candidate for candidate in able if candidate.usable >= needed]
    if not fitting:
        return _refused(card, needed, candidates)
    best = max(fitting, key=lambda candidate: (candidate.ready, candidate.usable))
    assert best.engine is not None  # narrowed by `able`
    return Placement(
        node=best.node,
        engine=best.engine,
        context=context,
        slots=request.slots or limits.SLOTS,
        reason=f"{_needs(card, context, needed)}; {'; '.join(_figures(candidate) for candidate in candidates)}; "
        f"{best.node.facts.hostname} was chosen",
    )


def nodes_with_room(state: State, card: ModelCard, removable: Set[InstanceId]) -> frozenset[NodeId]:
    """The nodes that could take a model, with the default context, once some of these instances are gone."""
    staying = [instance for instance_id, instance in state.instances.items() if instance_id not in removable]
    left = state.model_copy(update={"instances": Map({instance.instance_id: instance for instance in staying})})
    needed = needed_bytes(card, min(limits.CONTEXT_TOKENS, card.context))
    candidates = [_candidate(left, node, card) for node in state.nodes.values()]
    return frozenset(
        candidate.node.node_id
        for candidate in candidates
        if candidate.engine is not None and candidate.empty - candidate.reserved >= needed
    )


def instance_from(placement: Placement, card: ModelCard, instance_id: InstanceId, runner_id: RunnerId) -> Instance:
    """The instance that a placement describes: one shard with all layers."""
    shard = Shard(
        runner_id=runner_id,
        node_id=placement.node.node_id,
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=card.layers,
        sharding="pipeline",
        card=card,
    )
    return Instance(
        instance_id=instance_id,
        card=card,
        engine=placement.engine,
        shards=(shard,),
        context=placement.context,
        slots=placement.slots,
    )


def needed_bytes(card: ModelCard, context: int) -> int:
    """Bytes that a model needs with `context` tokens of keys and values, headroom included."""
    return int((card.weight_bytes + card.kv_bytes(context)) * limits.HEADROOM)


def _candidate(state: State, node: Node, card: ModelCard) -> _Candidate:
    holding = node.holdings.get(card.model_id)
    placed = [instance for instance in state.instances.values() if node.node_id in instance.node_ids]
    unified = any(gpu.unified for gpu in node.facts.gpus)
    empty = int(node.facts.memory_bytes * (limits.UNIFIED_SHARE if unified else 1.0))
    reserved = sum(needed_bytes(instance.card, instance.context) for instance in placed)
    return _Candidate(
        node=node,
        engine=_engine_for(node, card) if holding else None,
        usable=min(node.available_bytes, empty - reserved) if placed else empty,
        empty=empty,
        reserved=reserved,
        ready=holding is not None and holding.status == "ready",
    )


def _engine_for(node: Node, card: ModelCard) -> EngineName | None:
    if card.family == "scripted":
        return "scripted" if "scripted" in node.facts.engines else None
    return next((engine for engine in node.facts.engines if engine != "scripted"), None)


def _refused(card: ModelCard, needed: int, candidates: list[_Candidate]) -> Refused:
    able = [candidate for candidate in candidates if candidate.engine is not None]
    if not candidates:
        return Refused("no node has joined the cluster", may_pass=True)
    if not able:
        return Refused(f"no node has both {card.model_id} and an engine that runs it", may_pass=False)
    figures = "; ".join(_figures(candidate) for candidate in candidates)
    return Refused(
        f"{card.model_id} needs {_gigabytes(needed)}, more than any node can give: {figures}",
        may_pass=any(candidate.empty >= needed for candidate in able),
    )


def _needs(card: ModelCard, context: int, needed: int) -> str:
    weights, cache = _gigabytes(card.weight_bytes), _gigabytes(card.kv_bytes(context))
    return f"needs {_gigabytes(needed)} ({weights} weights, {cache} KV cache for {context} tokens, 10 % headroom)"


def _figures(candidate: _Candidate) -> str:
    host = candidate.node.facts.hostname
    if candidate.engine is None:
        return f"{host} has no engine for it or cannot get it"
    held = "has it on disk" if candidate.ready else "would have to fetch it"
    return f"{host} can give {_gigabytes(max(0, candidate.usable))} and {held}"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"
