"""Every way in which a model could be placed now, and for those that cannot be taken, why."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from exo.domain.model_card import ModelCard
from exo.domain.placement.choice import impossible, place_on
from exo.domain.placement.request import Placement, PlacementRequest, Refused, RefusedCode
from exo.domain.placement.survey import survey
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import Node, State

MLX_COMMUNITY = "mlx-community/"
"""Whose conversions are in MLX's own format."""
UNQUANTIZED = frozenset({"none", "float32", "float16", "bfloat16"})


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


def previews(state: State, card: ModelCard, context: int | None = None) -> list[Preview]:
    """For MLX each sharding x backend x number of nodes, and vLLM on one node where any node has it."""
    request = PlacementRequest(card, context)
    return [_preview(state, way) for way in _ways(state, request)]


def _ways(state: State, request: PlacementRequest) -> Iterator[PlacementRequest]:
    yield request
    for size in range(2, len(state.nodes) + 1):
        for sharding in ("pipeline", "tensor"):
            for backend in ("ring", "jaccl"):
                yield replace(request, sharding=sharding, backend=backend, min_nodes=size)
    if any("vllm" in node.facts.engines for node in state.nodes.values()):
        yield replace(request, engine="vllm")


def _preview(state: State, request: PlacementRequest) -> Preview:
    found = survey(state, request)
    answer = _why_not_offered(state, request) or impossible(found) or place_on(found, found.nodes_least)
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
    if not card.model_id.startswith(MLX_COMMUNITY) or card.quantization in UNQUANTIZED:
        return None
    if request.runs_in == "vllm":
        return Refused(
            "not_offered", f"vLLM does not read MLX's {card.quantization} weights: choose an unquantized conversion"
        )
    if card.quantization in ("4bit", "8bit") and any(_has_cuda(node) for node in state.nodes.values()):
        return Refused(
            "not_offered", f"MLX has no matrix product of {card.quantization} weights on CUDA, which this cluster has"
        )
    return None


def _has_cuda(node: Node) -> bool:
    return node.facts.system != "darwin" and bool(node.facts.gpus)
