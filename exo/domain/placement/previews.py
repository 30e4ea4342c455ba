"""Every way in which a model could be placed now, and for those that cannot be taken, why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from exo.domain.placement.choice import impossible, place_on
from exo.domain.placement.engines import is_mlx_format
from exo.domain.placement.request import Placement, PlacementRequest, Refused, RefusedCode
from exo.domain.placement.survey import survey
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import Node, State

SHARDINGS: tuple[Sharding, ...] = ("pipeline", "tensor")
BACKENDS: tuple[Backend, ...] = ("ring", "jaccl")


@dataclass(frozen=True, slots=True)
class Preview:
    """One way."""

    engine: EngineName
    sharding: Sharding
    backend: Backend
    nodes: int
    """How many."""
    needed: int
    """Bytes, over all nodes."""
    placement: Placement | None
    """None: it cannot be taken."""
    reason: str
    """The figures of a placement, or why there is none."""
    code: RefusedCode | None = None
    """Of the refusal."""


def previews(
    state: State,
    request: PlacementRequest,
    shardings: Sequence[Sharding] = SHARDINGS,
    backends: Sequence[Backend] = BACKENDS,
) -> list[Preview]:
    """For MLX each of the shardings x backends x number of nodes from the least that is asked for, and vLLM on one node
    where any node has it. Where an engine is asked for, that one alone. One node has no sharding and no backend."""
    has_vllm = any("vllm" in node.facts.engines for node in state.nodes.values())
    ways: list[PlacementRequest] = []
    if request.engine != "vllm":
        ways += _ways(state, request, shardings, backends)
    if request.engine == "vllm" or (request.engine is None and request.nodes_least == 1 and has_vllm):
        ways.append(replace(request, engine="vllm"))
    return [_preview(state, way) for way in ways]


def _ways(
    state: State, request: PlacementRequest, shardings: Sequence[Sharding], backends: Sequence[Backend]
) -> Iterator[PlacementRequest]:
    least = request.nodes_least
    if least == 1:
        yield request
    for size in range(max(2, least), max(len(state.nodes), least) + 1):
        for sharding in shardings:
            for backend in backends:
                yield replace(request, sharding=sharding, backend=backend, min_nodes=size)


def _preview(state: State, request: PlacementRequest) -> Preview:
    found = survey(state, request)
    answer = _why_not_offered(state, request) or impossible(found) or place_on(found, found.request.nodes_least)
    return Preview(
        engine=request.runs_in,
        sharding=request.sharding,
        backend=request.backend,
        nodes=request.min_nodes,
        needed=found.needed,
        placement=None if isinstance(answer, Refused) else answer,
        reason=answer.reason,
        code=answer.code if isinstance(answer, Refused) else None,
    )


def _why_not_offered(state: State, request: PlacementRequest) -> Refused | None:
    """What would fit and not run."""
    card = request.card
    if not is_mlx_format(card) or request.runs_in == "vllm":
        return None
    if card.quantization in ("4bit", "8bit") and any(_has_cuda(node) for node in state.nodes.values()):
        return Refused(
            "not_offered", f"MLX has no matrix product of {card.quantization} weights on CUDA, which this cluster has"
        )
    return None


def _has_cuda(node: Node) -> bool:
    return node.facts.system != "darwin" and bool(node.facts.gpus)
