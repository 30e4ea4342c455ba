"""Reports: what a worker or a runner saw. Dropped when they no longer apply."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.ids import TOKEN, ModelId, NodeId, RunnerId, TaskId
from exo.domain.node import DamagedModel, Holding, Link, NodeFacts
from exo.domain.prefill import PrefillAttempt
from exo.domain.runner_status import RunnerStatus
from exo.domain.sampling import FinishReason, Timings, Usage


class NodeSeen(Frozen):
    """A worker started, or something about its machine changed that a decision depends on."""

    type: Literal["NodeSeen"] = "NodeSeen"
    version: Literal[1] = 1
    node_id: Annotated[NodeId, Field(pattern=TOKEN.pattern, max_length=64)]
    boot_id: str
    """New at every start of the worker: all runners of an earlier one are gone."""
    facts: NodeFacts
    available_bytes: NonNegativeInt
    """Memory free for use now."""
    holdings: tuple[Holding, ...]
    damaged: tuple[DamagedModel, ...] = ()


class LinksSeen(Frozen):
    """The links from a node to the others are not those that it last told of."""

    type: Literal["LinksSeen"] = "LinksSeen"
    version: Literal[1] = 1
    node_id: NodeId
    boot_id: str
    links: tuple[Link, ...]


class NodeLeft(Frozen):
    """A worker stops because it was told to."""

    type: Literal["NodeLeft"] = "NodeLeft"
    version: Literal[1] = 1
    node_id: NodeId
    boot_id: str


class DownloadSeen(Frozen):
    """A model is being brought onto a node: fetched, converted, checked. How far is a gauge."""

    type: Literal["DownloadSeen"] = "DownloadSeen"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId
    status: Literal["started", "finished", "failed", "abandoned"]
    """abandoned: nobody needs the model there any more."""
    reason: str = ""


class RemovalSeen(Frozen):
    """A model was deleted from a node's disk, or could not be."""

    type: Literal["RemovalSeen"] = "RemovalSeen"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId
    status: Literal["removed", "failed"]
    reason: str = ""
    holding: Holding | None = None
    """How the node can get it again; None: it cannot."""


class RunnerStatusSeen(Frozen):
    """A runner came into a state."""

    type: Literal["RunnerStatusSeen"] = "RunnerStatusSeen"
    version: Literal[1] = 1
    runner_id: RunnerId
    process: str
    """Which start of the runner: what an earlier one says late no longer applies."""
    status: RunnerStatus


class GenerationEnded(Frozen):
    """Rank 0 has published the last chunk of a generation."""

    type: Literal["GenerationEnded"] = "GenerationEnded"
    version: Literal[1] = 1
    task_id: TaskId
    process: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    code: str = ""
    """Of the error, if it is one: as in the API's envelope."""
    error: str = ""
    output: str | None = None
    """The text, only where the operator chose to log prompts."""
    prefill: PrefillAttempt | None = None
    """Of another instance that was asked for it."""


Report = Annotated[
    NodeSeen | LinksSeen | NodeLeft | DownloadSeen | RemovalSeen | RunnerStatusSeen | GenerationEnded,
    Field(discriminator="type"),
]
