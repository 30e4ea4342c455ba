"""Events: facts, in the past tense.

A `type` that was logged once is frozen for ever; a changed shape gets a new `version`.
"""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.embedding import Gives
from exo.domain.ids import ApiId, InstanceId, KeyName, MessageId, ModelId, NodeId, RunnerId, TaskId
from exo.domain.instance import Instance
from exo.domain.keys import Digest, Scope
from exo.domain.model_card import ModelCard
from exo.domain.node import DamagedModel, Holding, Link, NodeFacts
from exo.domain.prefill import PrefillAttempt
from exo.domain.sampling import FinishReason, Timings, Usage


class MasterElected(Frozen):
    """A master holds the lease and wrote this first: whoever wrote before it may not write again."""

    type: Literal["MasterElected"] = "MasterElected"
    version: Literal[1] = 1
    node_id: NodeId
    epoch: int


class NodeJoined(Frozen):
    """A worker started on a node. Every runner that the node had is gone."""

    type: Literal["NodeJoined"] = "NodeJoined"
    version: Literal[2] = 2
    node_id: NodeId
    boot_id: str
    facts: NodeFacts
    available_bytes: NonNegativeInt
    holdings: tuple[Holding, ...]
    damaged: tuple[DamagedModel, ...] = ()


class NodeChanged(Frozen):
    """Something about a node changed that a decision depends on."""

    type: Literal["NodeChanged"] = "NodeChanged"
    version: Literal[2] = 2
    node_id: NodeId
    facts: NodeFacts
    available_bytes: NonNegativeInt
    holdings: tuple[Holding, ...]
    damaged: tuple[DamagedModel, ...] = ()


class NodeLinksChanged(Frozen):
    """A node reaches others over other links than before."""

    type: Literal["NodeLinksChanged"] = "NodeLinksChanged"
    version: Literal[1] = 1
    node_id: NodeId
    links: tuple[Link, ...]


class NodeLost(Frozen):
    """A node is silent for longer than its deadline, or said goodbye."""

    type: Literal["NodeLost"] = "NodeLost"
    version: Literal[1] = 1
    node_id: NodeId
    reason: str


class DownloadRequested(Frozen):
    """Somebody wants a model on a node; its worker brings it there."""

    type: Literal["DownloadRequested"] = "DownloadRequested"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId


class DownloadCancelled(Frozen):
    """Whoever wanted a model on a node wants it no more."""

    type: Literal["DownloadCancelled"] = "DownloadCancelled"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId


class DownloadStarted(Frozen):
    """A node began to bring a model onto its disk."""

    type: Literal["DownloadStarted"] = "DownloadStarted"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId


class DownloadFinished(Frozen):
    """A node holds a model, ready to load."""

    type: Literal["DownloadFinished"] = "DownloadFinished"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId


class DownloadFailed(Frozen):
    """A node could not get a model."""

    type: Literal["DownloadFailed"] = "DownloadFailed"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId
    reason: str


class RemovalRequested(Frozen):
    """Somebody wants a model off a node's disk; its worker deletes it."""

    type: Literal["RemovalRequested"] = "RemovalRequested"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId


class ModelRemoved(Frozen):
    """A node deleted a model from its disk."""

    type: Literal["ModelRemoved"] = "ModelRemoved"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId
    holding: Holding | None
    """How the node can get it again; None: it cannot."""


class RemovalFailed(Frozen):
    """A node did not delete a model that it was to."""

    type: Literal["RemovalFailed"] = "RemovalFailed"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId
    reason: str


class ModelAdded(Frozen):
    """A model is known from now on, beside those that exo knows by itself."""

    type: Literal["ModelAdded"] = "ModelAdded"
    version: Literal[1] = 1
    card: ModelCard


class ModelForgotten(Frozen):
    """A model that was added is known no more."""

    type: Literal["ModelForgotten"] = "ModelForgotten"
    version: Literal[1] = 1
    model_id: ModelId


class InstancePlaced(Frozen):
    """A model was put on nodes; their workers start the runners."""

    type: Literal["InstancePlaced"] = "InstancePlaced"
    version: Literal[2] = 2
    instance: Instance
    reason: str
    """Why there: the figures that the decision was based on."""
    min_nodes: int = 1
    """The fewest nodes that were asked for."""
    required_nodes: tuple[NodeId, ...] = ()
    """Nodes that were asked for by name."""


class InstanceDeleted(Frozen):
    """An instance is gone because somebody wanted it, or the room was needed."""

    type: Literal["InstanceDeleted"] = "InstanceDeleted"
    version: Literal[1] = 1
    instance_id: InstanceId
    reason: str


class InstanceFailed(Frozen):
    """An instance is given up."""

    type: Literal["InstanceFailed"] = "InstanceFailed"
    version: Literal[1] = 1
    instance_id: InstanceId
    reason: str


class IdleTimeLimited(Frozen):
    """Somebody said how long a model stays that nobody asks for."""

    type: Literal["IdleTimeLimited"] = "IdleTimeLimited"
    version: Literal[1] = 1
    model_id: ModelId
    seconds: NonNegativeFloat | None
    """None: until somebody needs the room."""


class InstancesLinked(Frozen):
    """One instance computes the prompts that another one answers, from now on."""

    type: Literal["InstancesLinked"] = "InstancesLinked"
    version: Literal[1] = 1
    prefill_id: InstanceId
    decode_id: InstanceId


class InstancesUnlinked(Frozen):
    """An instance computes its prompts by itself again, because somebody wanted it, or one of the two is gone."""

    type: Literal["InstancesUnlinked"] = "InstancesUnlinked"
    version: Literal[1] = 1
    prefill_id: InstanceId
    decode_id: InstanceId
    reason: str


class RunnerStarted(Frozen):
    """A process was started for a runner; it is connecting."""

    type: Literal["RunnerStarted"] = "RunnerStarted"
    version: Literal[1] = 1
    runner_id: RunnerId
    process: str


class RunnerJoining(Frozen):
    """A runner of several ranks has a process that waits for its peers."""

    type: Literal["RunnerJoining"] = "RunnerJoining"
    version: Literal[1] = 1
    runner_id: RunnerId
    port: int


class RunnerLoading(Frozen):
    """A runner reads its weights."""

    type: Literal["RunnerLoading"] = "RunnerLoading"
    version: Literal[1] = 1
    runner_id: RunnerId


class RunnerWarming(Frozen):
    """A runner has its weights and tries itself out."""

    type: Literal["RunnerWarming"] = "RunnerWarming"
    version: Literal[1] = 1
    runner_id: RunnerId


class RunnerReady(Frozen):
    """A runner takes tasks."""

    type: Literal["RunnerReady"] = "RunnerReady"
    version: Literal[1] = 1
    runner_id: RunnerId
    tokens_per_second: NonNegativeFloat


class RunnerFailed(Frozen):
    """A runner's process ended unasked, or overran a deadline."""

    type: Literal["RunnerFailed"] = "RunnerFailed"
    version: Literal[1] = 1
    runner_id: RunnerId
    reason: str
    retry_at: NonNegativeFloat
    """Seconds since the epoch: not started again before."""


class RunnerStopped(Frozen):
    """A runner's process ended as it was told."""

    type: Literal["RunnerStopped"] = "RunnerStopped"
    version: Literal[1] = 1
    runner_id: RunnerId


class GenerationQueued(Frozen):
    """A generation was accepted and waits for a ready instance with a free slot."""

    type: Literal["GenerationQueued"] = "GenerationQueued"
    version: Literal[2] = 2
    task_id: TaskId
    model_id: ModelId
    estimated_tokens: NonNegativeInt
    key: str
    client: str = ""
    """Who shares slots with others: the name of the API key, or the caller's address; empty: not known."""
    reply_to: ApiId
    prompt: str | None = None
    gives: Gives = "text"
    needs_reader: bool = False
    """Whether it is cancelled when no API process reads it any more."""


class GenerationDispatched(Frozen):
    """A generation was given to an instance."""

    type: Literal["GenerationDispatched"] = "GenerationDispatched"
    version: Literal[1] = 1
    task_id: TaskId
    instance_id: InstanceId


class CancellationRequested(Frozen):
    """A running generation is to stop; the runner has been told."""

    type: Literal["CancellationRequested"] = "CancellationRequested"
    version: Literal[1] = 1
    task_id: TaskId
    reason: str


class GenerationFinished(Frozen):
    """A generation is over. Its slot is free."""

    type: Literal["GenerationFinished"] = "GenerationFinished"
    version: Literal[3] = 3
    task_id: TaskId
    finish_reason: FinishReason
    usage: Usage = Usage()
    timings: Timings = Timings()
    code: str = ""
    """Of the error, if it is one: as in the API's envelope."""
    error: str = ""
    output: str | None = None
    prefill: PrefillAttempt | None = None
    """Of another instance that was asked for it."""


class KeyCreated(Frozen):
    """A key is good from now on."""

    type: Literal["KeyCreated"] = "KeyCreated"
    version: Literal[1] = 1
    key: KeyName
    digest: Digest
    scopes: tuple[Scope, ...]


class KeyRevoked(Frozen):
    """A key is good no more, and never again."""

    type: Literal["KeyRevoked"] = "KeyRevoked"
    version: Literal[1] = 1
    key: KeyName


class CommandRejected(Frozen):
    """A command was refused; its sender can do something about it."""

    type: Literal["CommandRejected"] = "CommandRejected"
    version: Literal[2] = 2
    command: str
    """The command's type."""
    code: str
    reason: str
    retry_after: NonNegativeInt | None = None
    """Seconds after which it may be granted; None: as the code has it."""


class Compacted(Frozen):
    """What an event leaves behind whose content was dropped to save room. No decision gives it, only `exo log compact`.

    It keeps its place and its time, and the chain goes on through the digest of what was there.
    """

    type: Literal["Compacted"] = "Compacted"
    version: Literal[1] = 1
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """SHA-256, hexadecimal, of the row that was there: as in `exo.log.codec.digest`."""


Event = Annotated[
    MasterElected
    | NodeJoined
    | NodeChanged
    | NodeLinksChanged
    | NodeLost
    | DownloadRequested
    | DownloadCancelled
    | DownloadStarted
    | DownloadFinished
    | DownloadFailed
    | RemovalRequested
    | ModelRemoved
    | RemovalFailed
    | ModelAdded
    | ModelForgotten
    | InstancePlaced
    | InstanceDeleted
    | InstanceFailed
    | IdleTimeLimited
    | InstancesLinked
    | InstancesUnlinked
    | RunnerStarted
    | RunnerJoining
    | RunnerLoading
    | RunnerWarming
    | RunnerReady
    | RunnerFailed
    | RunnerStopped
    | GenerationQueued
    | GenerationDispatched
    | CancellationRequested
    | GenerationFinished
    | KeyCreated
    | KeyRevoked
    | CommandRejected
    | Compacted,
    Field(discriminator="type"),
]


class Entry(Frozen):
    """An event with its circumstances, before it has a place in the log. This is what a message on `EVENTS` holds."""

    recorded_at: NonNegativeFloat
    """Seconds since the epoch, by the master's clock; never less than the entry before it."""
    cause_id: MessageId | None
    """The command or report that led to it; None: the master's own doing (a deadline, an election)."""
    source: str
    """Who sent the cause, or the master's node."""
    event: Event


class Recorded(Frozen):
    """An entry and its place in the log."""

    position: int
    """From 1, without a gap."""
    entry: Entry
