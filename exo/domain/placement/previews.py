"""Every way in which a model could be placed now, and for those that cannot be taken, why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from exo.domain.placement.choice import impossible, place_on
from exo.domain.placement.request import Placement, PlacementRequest, Refused, RefusedCode
from exo.domain.placement.speed import speed_of
from exo.domain.placement.survey import survey
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import State

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
    tokens_per_second: float | None = None
    """Of one stream, as measured when the model was last loaded there by this engine; None where it never was."""


def previews(
    state: State,
    request: PlacementRequest,
    shardings: Sequence[Sharding] = SHARDINGS,
    backends: Sequence[Backend] = BACKENDS,
) -> list[Preview]:
    """For MLX each of the shardings x backends x number of nodes from the least that is asked for, and vLLM, whether a
    node has it or not. Where an engine is asked for, that one alone. One node has no sharding and no backend in MLX;
    vLLM's one way is a pipeline over a ring, and is left out where others are asked for."""
    ways: list[PlacementRequest] = []
    if request.engine != "vllm":
        ways += _ways(state, request, shardings, backends)
    may_be_vllm = request.engine == "vllm" or (request.engine is None and request.runs_in != "scripted")
    if may_be_vllm and "pipeline" in shardings and "ring" in backends:
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
    answer = impossible(found) or place_on(found, found.request.nodes_least)
    placement = None if isinstance(answer, Refused) else answer
    return Preview(
        engine=request.runs_in,
        sharding=request.sharding,
        backend=request.backend,
        nodes=request.min_nodes,
        needed=found.needed,
        placement=placement,
        reason=answer.reason,
        code=answer.code if isinstance(answer, Refused) else None,
        tokens_per_second=speed_of(state, request.card.model_id, placement) if placement else None,
    )
