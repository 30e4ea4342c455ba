"""State: everything that decisions rest on, and nothing else. Made by `fold` alone."""

from collections.abc import Iterable
from typing import Literal, TypedDict

from immutables import Map
from pydantic import Field, NonNegativeFloat, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.ids import ApiId, InstanceId, KeyName, ModelId, NodeId, RunnerId, TaskId
from exo.domain.instance import Instance
from exo.domain.keys import Key
from exo.domain.limits import FAILURE_REMEMBERED
from exo.domain.machine_names import machine_names
from exo.domain.model_card import ModelCard
from exo.domain.node import DamagedModel, Holding, Link, NodeFacts
from exo.domain.persistent_map import PersistentMap
from exo.domain.prefill import PrefillLink
from exo.domain.runner_status import Failed, Ready, RunnerStatus, Stopped, Waiting
from exo.domain.sampling import FinishReason, Timings, Usage
from exo.domain.shard import EngineName

ENDED_KEPT = 100
"""Ended generations that stay in State; all of them stay in the log's projection."""
SPEEDS_KEPT = 200
"""Measured speeds that stay in State."""


class Node(Frozen):
    """A machine whose worker runs."""

    node_id: NodeId
    boot_id: str
    facts: NodeFacts
    available_bytes: NonNegativeInt
    """Memory free at the last report that mattered."""
    holdings: PersistentMap[ModelId, Holding]
    joined_at: NonNegativeFloat
    links: tuple[Link, ...] = ()
    """To other nodes, as last measured."""
    damaged: tuple[DamagedModel, ...] = ()
    """Model folders on its disk that it cannot load."""
    removals: PersistentMap[ModelId, NonNegativeFloat] = Field(default_factory=Map[ModelId, NonNegativeFloat])
    """Models that its worker is to delete, and when somebody asked for that."""


class Runner(Frozen):
    """One shard's place, and the process that fills it now."""

    runner_id: RunnerId
    instance_id: InstanceId
    node_id: NodeId
    status: RunnerStatus
    since: NonNegativeFloat
    """When it came into this status."""
    process: str = ""
    """Which start of it; empty before the first."""
    failures: NonNegativeInt = 0
    """Since it was last ready."""
    retry_at: NonNegativeFloat = 0.0


class Download(Frozen):
    """A model on its way onto a node, or one that could not be had there."""

    node_id: NodeId
    model_id: ModelId
    since: NonNegativeFloat
    status: Literal["requested", "running", "failed"] = "running"
    """requested: its worker has not begun."""
    reason: str = ""
    requested: bool = False
    """Somebody wants it there: it goes on where no instance needs it."""


class Generation(Frozen):
    """A request that is not over."""

    task_id: TaskId
    model_id: ModelId
    key: str
    reply_to: ApiId
    queued_at: NonNegativeFloat
    queued_position: int
    """Of its event in the log: the order in which the queue is served."""
    instance_id: InstanceId | None = None
    """None: queued."""
    dispatched_at: NonNegativeFloat = 0.0
    processes: tuple[str, ...] = ()
    """The runner processes that it was given to, by rank."""
    log_output: bool = False
    client: str = ""
    """Who shares slots with others."""
    cancel_requested_at: NonNegativeFloat | None = None
    needs_reader: bool = False
    """Whether it is cancelled when no API process reads it any more."""


class EndedGeneration(Frozen):
    """One of the last generations that ended."""

    task_id: TaskId
    model_id: ModelId
    key: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    queued_at: NonNegativeFloat
    ended_at: NonNegativeFloat
    error: str
    client: str = ""
    dispatched_at: NonNegativeFloat = 0.0
    """0: it was over before a slot was free."""


class Failure(Frozen):
    """Why a model could last not be loaded."""

    reason: str
    at: NonNegativeFloat


class IdleLimit(Frozen):
    """How long a model stays that nobody asks for."""

    seconds: NonNegativeFloat
    since: NonNegativeFloat
    """When it was last told, ready, or used; while a generation of it is live it is not idle."""


class Speed(Frozen):
    """What a model's warm-up measured, where one node has all of it."""

    node_id: NodeId
    engine: EngineName
    model_id: ModelId
    tokens_per_second: NonNegativeFloat
    """Of one stream."""

    def is_of(self, node_id: NodeId, engine: EngineName, model_id: ModelId) -> bool:
        """Whether it was measured of these."""
        return (self.node_id, self.engine, self.model_id) == (node_id, engine, model_id)


class State(Frozen):
    """The cluster at one position of the log."""

    position: NonNegativeInt = 0
    time: NonNegativeFloat = 0.0
    """Of the last event, seconds since the epoch."""
    epoch: NonNegativeInt = 0
    """Of the master that wrote last."""
    master: NodeId | None = None
    nodes: PersistentMap[NodeId, Node] = Field(default_factory=Map[NodeId, Node])
    instances: PersistentMap[InstanceId, Instance] = Field(default_factory=Map[InstanceId, Instance])
    runners: PersistentMap[RunnerId, Runner] = Field(default_factory=Map[RunnerId, Runner])
    downloads: PersistentMap[str, Download] = Field(default_factory=Map[str, Download])
    """By `download_key`."""
    generations: PersistentMap[TaskId, Generation] = Field(default_factory=Map[TaskId, Generation])
    ended: tuple[EndedGeneration, ...] = ()
    """The last ENDED_KEPT, oldest first."""
    failures: PersistentMap[ModelId, Failure] = Field(default_factory=Map[ModelId, Failure])
    """Models whose last instance failed; cleared when one is ready."""
    idle_limits: PersistentMap[ModelId, IdleLimit] = Field(default_factory=Map[ModelId, IdleLimit])
    """Of models that do not stay until somebody needs the room."""
    keys: PersistentMap[KeyName, Key] = Field(default_factory=Map[KeyName, Key])
    """All that were ever made: a revoked one keeps its name."""
    added_models: PersistentMap[ModelId, ModelCard] = Field(default_factory=Map[ModelId, ModelCard])
    """Those that somebody made known, beside those that exo knows by itself."""
    prefill_links: PersistentMap[InstanceId, PrefillLink] = Field(default_factory=Map[InstanceId, PrefillLink])
    """By the instance that decodes."""
    speeds: tuple[Speed, ...] = ()
    """The last SPEEDS_KEPT, oldest first; of a node, an engine and a model the newest alone."""


class StateChanges(TypedDict, total=False):
    """Fields of State with new values."""

    position: int
    time: float
    epoch: int
    master: NodeId
    nodes: Map[NodeId, Node]
    instances: Map[InstanceId, Instance]
    runners: Map[RunnerId, Runner]
    downloads: Map[str, Download]
    generations: Map[TaskId, Generation]
    ended: tuple[EndedGeneration, ...]
    failures: Map[ModelId, Failure]
    idle_limits: Map[ModelId, IdleLimit]
    keys: Map[KeyName, Key]
    added_models: Map[ModelId, ModelCard]
    prefill_links: Map[InstanceId, PrefillLink]
    speeds: tuple[Speed, ...]


def download_key(node_id: NodeId, model_id: ModelId) -> str:
    """The key of a download in State."""
    return f"{node_id}:{model_id}"


def requested_on(state: State, node_id: NodeId) -> set[ModelId]:
    """The models that somebody wants on a node, and that are not there yet."""
    return {one.model_id for one in state.downloads.values() if one.requested and one.node_id == node_id}


def on_disk(node: Node) -> set[ModelId]:
    """The models whose files a node has, damaged ones too."""
    ready = {model_id for model_id, holding in node.holdings.items() if holding.status == "ready"}
    return ready | {one.model_id for one in node.damaged}


def is_leaving(state: State, model_id: ModelId) -> bool:
    """Whether some node is still to delete a model."""
    return any(model_id in node.removals for node in state.nodes.values())


def names_of(nodes: Iterable[Node]) -> dict[NodeId, str]:
    """The name of each node's machine, with the node's id where another of them has the same."""
    return machine_names({node.node_id: node.facts.hostname for node in nodes})


def host_of(state: State, node_id: NodeId) -> str:
    """The name of a node's machine, with the node's id where another has the same, or the id alone where it is gone."""
    return names_of(state.nodes.values()).get(node_id, node_id)


def damage_of(state: State, model_id: ModelId) -> str | None:
    """What is wrong with a model's folder, on each node that has a damaged one; None where none has."""
    found = [
        f"{host_of(state, node_id)}: {one.reason}"
        for node_id, node in sorted(state.nodes.items())
        for one in node.damaged
        if one.model_id == model_id
    ]
    return f"the model '{model_id}' is damaged on node {'; on node '.join(found)}" if found else None


def is_known(state: State, model_id: ModelId) -> bool:
    """Whether a model needs not be made known: some node has or can get it, or it was added."""
    return model_id in state.added_models or any(model_id in node.holdings for node in state.nodes.values())


def instances_of(state: State, model_id: ModelId) -> list[Instance]:
    """The instances of a model, in a stable order."""
    found = (instance for instance in state.instances.values() if instance.model_id == model_id)
    return sorted(found, key=lambda instance: instance.instance_id)


def recent_failure(state: State, model_id: ModelId, now: float) -> Failure | None:
    """Why a model could not be loaded a moment ago, if no instance of it has been placed since."""
    failure = state.failures.get(model_id)
    if failure is None or now - failure.at > FAILURE_REMEMBERED or instances_of(state, model_id):
        return None
    return failure


def is_ready(state: State, instance: Instance) -> bool:
    """Whether all its runners take tasks."""
    return all(isinstance(state.runners[runner_id].status, Ready) for runner_id in instance.runner_ids)


def is_up(runner: Runner) -> bool:
    """Whether it should have a process."""
    return not isinstance(runner.status, Waiting | Stopped | Failed)


def generations_on(state: State, instance_id: InstanceId) -> list[Generation]:
    """The generations that were given to an instance and are not over, oldest first."""
    found = (generation for generation in state.generations.values() if generation.instance_id == instance_id)
    return sorted(found, key=lambda generation: generation.queued_position)
