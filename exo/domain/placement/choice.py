"""The choice: the smallest group of nodes that can take a model; of equals, the one that has most of it already."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, islice

from exo.domain import limits
from exo.domain.ids import InstanceId
from exo.domain.placement import explain
from exo.domain.placement.engines import engines_for, why_not
from exo.domain.placement.memory import NOBODY, Room, share_bytes
from exo.domain.placement.rdma import Mesh, find_mesh
from exo.domain.placement.request import Placement, PlacementRequest, Refused, RefusedCode, Share
from exo.domain.placement.rings import Hops, find_ring
from exo.domain.placement.sharding import pipeline_layers, tensor_problem
from exo.domain.placement.speed import fastest
from exo.domain.placement.survey import Survey, survey
from exo.domain.shard import Sharding
from exo.domain.state import State

UNABLE: frozenset[RefusedCode] = frozenset({"no_engine", "not_offered"})
"""Of an engine that cannot run the model on any node, however much room there were."""
_STAGES: tuple[RefusedCode, ...] = ("no_ring", "insufficient_memory", "too_few_layers", "tensor_shape", "no_rdma")
"""What a group of nodes may lack. The last of these that any group came to is why there is no place."""


def place(state: State, request: PlacementRequest, leaving: Set[InstanceId] = NOBODY) -> Placement | Refused:
    """The best nodes for a model, by rank, or why none can take it. `leaving`: instances that count as gone.

    Candidates are single nodes, and groups of nodes that measured links join in a directed ring; for vLLM, single nodes
    alone. Needed are (weights + keys and values for the context) x 1.1, for vLLM x 1.3. A node counts with its memory,
    for vLLM on GPUs with theirs, where nothing is placed, else with what is free of it. The fewest nodes win, then
    those with most of the model on their disks, then the most free memory. Where no engine is asked for, it is the
    first that has a place for it of those that nodes have, unless another was measured to be faster on the same node;
    where none has a place, the reason of the one is told that comes closest.
    """
    ways = [replace(request, engine=engine) for engine in engines_for(state, request)]
    answers = [_place(state, way, leaving) for way in ways]
    placements = [answer for answer in answers if isinstance(answer, Placement)]
    return fastest(state, request.card.model_id, placements) if placements else _closest(answers)


def _closest(answers: Sequence[Placement | Refused]) -> Placement | Refused:
    """Of refusals, the first that may pass, else the first of an engine that nodes have and that reads the model."""
    refusals = [answer for answer in answers if isinstance(answer, Refused)]
    may_pass = [refusal for refusal in refusals if refusal.may_pass]
    able = [refusal for refusal in refusals if refusal.code not in UNABLE]
    return (may_pass or able or refusals)[0]


def _place(state: State, request: PlacementRequest, leaving: Set[InstanceId]) -> Placement | Refused:
    found = survey(state, request, leaving)
    hopeless = impossible(found)
    if hopeless is not None:
        return hopeless
    most = 1 if request.runs_in == "vllm" else len(found.able)
    refusals: list[Refused] = []
    for size in range(found.request.nodes_least, most + 1):
        placement = place_on(found, size)
        if isinstance(placement, Placement):
            return placement
        refusals.append(placement)
    code = max(refusals, key=lambda refusal: _STAGES.index(refusal.code)).code
    may_pass = code == "insufficient_memory" and _would_fit_alone(state, request, leaving)
    lacks_links = any(refusal.lacks_links for refusal in refusals)
    return Refused(code, explain.refused(found, refusals, code), may_pass, lacks_links)


def place_on(found: Survey, size: int) -> Placement | Refused:
    """The best group of so many nodes, or why there is none."""
    largest = sorted(found.able, key=lambda room: -room.usable)[:size]
    if sum(room.usable for room in largest) < found.needed:
        return Refused("insufficient_memory", explain.together(largest))
    lacks: list[_Lack] = []
    for group in _groups(found, size):
        placement = _on_group(found, group)
        if isinstance(placement, Placement):
            return placement
        lacks.append(placement)
    closest = max(lacks, key=lambda lack: _STAGES.index(lack.code))
    return Refused(closest.code, closest.why(), lacks_links=any(lack.code == "no_ring" for lack in lacks))


def impossible(found: Survey) -> Refused | None:
    """What no group of the nodes that are there would help against."""
    request = found.request
    unknown = sorted(set(request.node_ids) - {room.node.node_id for room in found.rooms})
    if unknown:
        return Refused("node_not_found", f"no node {', '.join(unknown)} is in the cluster")
    if not found.rooms:
        return Refused("no_nodes", "no node has joined the cluster", may_pass=True)
    if request.runs_in == "vllm" and (found.request.nodes_least > 1 or request.sharding == "tensor"):
        return Refused("vllm_one_node_only", explain.VLLM_ALONE)
    if unreadable := why_not(request.card, request.runs_in):
        return Refused("not_offered", unreadable)
    able = {room.node.node_id for room in found.able}
    if not able or not able.issuperset(request.node_ids):
        return Refused("no_engine", explain.no_engine(found))
    if found.request.nodes_least > len(able):
        return Refused("not_enough_nodes", explain.too_few(found, found.request.nodes_least))
    return None


def _would_fit_alone(state: State, request: PlacementRequest, leaving: Set[InstanceId]) -> bool:
    everything = frozenset(state.instances)
    return leaving != everything and isinstance(place(state, request, everything), Placement)


def _groups(found: Survey, size: int) -> list[list[Room]]:
    """Groups of so many nodes with all that are required, the best first; each with the node first that is freest."""
    able = sorted(found.able, key=lambda room: (-room.held, -room.free, room.node.node_id))
    required = [room for room in able if room.node.node_id in found.request.node_ids]
    others = [room for room in able if room.node.node_id not in found.request.node_ids]
    most = None if len(able) <= limits.NODES_FEW else limits.CANDIDATES_MOST
    chosen = islice(combinations(others, max(0, size - len(required))), most)
    groups = [sorted([*required, *some], key=lambda room: (-room.free, room.node.node_id)) for some in chosen]
    return sorted(groups, key=_rank)


def _rank(group: list[Room]) -> tuple[float, int, list[str]]:
    held, free = sum(room.held for room in group), sum(room.free for room in group)
    return -held, -free, sorted(room.node.node_id for room in group)


@dataclass(frozen=True, slots=True)
class _Lack:
    """What a group lacks. There may be thousands, and one is told."""

    code: RefusedCode
    why: Callable[[], str]


def _on_group(found: Survey, group: list[Room]) -> Placement | _Lack:
    if sum(room.usable for room in group) < found.needed:
        return _Lack("insufficient_memory", lambda: explain.together(group))
    ring = _ring(group, found.hops)
    if ring is None:
        return _Lack("no_ring", lambda: explain.not_linked(group))
    layers = _layers(found, ring)
    if isinstance(layers, _Lack):
        return layers
    needs_mesh = found.request.backend == "jaccl" and len(ring) > 1
    mesh = find_mesh([room.node for room in ring]) if needs_mesh else None
    if isinstance(mesh, str):
        return _Lack("no_rdma", lambda: mesh)
    return _placement(found, ring, layers, mesh)


def _layers(found: Survey, ring: list[Room]) -> list[int] | _Lack:
    """How many each gets, by rank."""
    size, card = len(ring), found.request.card
    if size == 1:
        return [card.layers]
    if found.request.sharding == "tensor":
        problem = tensor_problem(card, size)
        if problem is not None:
            return _Lack("tensor_shape", lambda: problem)
        fits = all(room.usable * size >= found.needed for room in ring)
        layers = [card.layers] * size if fits else None
    elif card.layers < size:
        return _Lack("too_few_layers", lambda: f"{card.layers} layers cannot be cut into {size} parts")
    else:
        layers = pipeline_layers(card.layers, [room.usable for room in ring], found.needed)
    return layers or _Lack("insufficient_memory", lambda: explain.share_too_large(ring, found))


def _ring(group: list[Room], hops: Hops) -> list[Room] | None:
    rooms = {room.node.node_id: room for room in group}
    ring = find_ring(list(rooms), hops)
    return None if ring is None else [rooms[node_id] for node_id in ring]


def _placement(found: Survey, ring: list[Room], layers: list[int], mesh: Mesh | None) -> Placement:
    request = found.request
    sharding = request.sharding if len(ring) > 1 else "pipeline"
    shares = tuple(_shares(found, ring, layers, sharding))
    return Placement(
        shares=shares,
        engine=request.runs_in,
        sharding=sharding,
        backend=request.backend if len(ring) > 1 else "ring",
        context=found.context,
        slots=request.slots or limits.SLOTS,
        reason=explain.chosen(found, shares),
        rdma_devices=mesh.devices if mesh else (),
        coordinators=mesh.coordinators if mesh else (),
    )


def _shares(found: Survey, ring: list[Room], layers: list[int], sharding: Sharding) -> list[Share]:
    """By rank. In a pipeline the last rank has the first layers, as in mlx-lm."""
    shares: list[Share] = []
    all_layers = found.request.card.layers
    end = all_layers
    for rank, (room, count) in enumerate(zip(ring, layers, strict=True)):
        start = end - count
        needed = share_bytes(found.needed, sharding, len(ring), count, all_layers)
        shares.append(Share(room.node, start, end, _host(found.hops, ring, rank), needed))
        end = all_layers if sharding == "tensor" else start
    return shares


def _host(hops: Hops, ring: list[Room], rank: int) -> str:
    if len(ring) == 1:
        return ""
    return hops.links[ring[rank - 1].node.node_id, ring[rank].node.node_id].address
