"""Commands: what somebody wants. Each ends in events, or in a CommandRejected that says why."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.embedding import Gives
from exo.domain.ids import TOKEN, ApiId, InstanceId, KeyName, ModelId, NodeId, TaskId
from exo.domain.keys import Digest, Name, Scopes
from exo.domain.limits import CONTEXT_MOST, IDLE_MOST, NODES_MOST, SLOTS_MOST
from exo.domain.model_card import ModelCard
from exo.domain.shard import Backend, EngineName, Sharding


class PlaceInstance(Frozen):
    """Put a model on one or more nodes and load it."""

    type: Literal["PlaceInstance"] = "PlaceInstance"
    version: Literal[1] = 1
    model_id: ModelId
    context: Annotated[int, Field(gt=0, le=CONTEXT_MOST)] | None = None
    """Tokens of prompt and output to reserve memory for; None: a default, at most the model's own."""
    slots: Annotated[int, Field(gt=0, le=SLOTS_MOST)] | None = None
    """Generations that may run side by side; None: a default."""
    engine: EngineName | None = None
    """None: MLX."""
    sharding: Sharding = "pipeline"
    """How the model is cut where it takes several nodes."""
    backend: Backend = "ring"
    min_nodes: Annotated[int, Field(gt=0, le=NODES_MOST)] = 1
    """The fewest nodes to spread it over, even where one would do."""
    node_ids: Annotated[tuple[NodeId, ...], Field(max_length=NODES_MOST)] = ()
    """Nodes that must be among those chosen."""
    only_if_absent: bool = False
    """Refuse when an instance of the model is there already, instead of adding a replica."""


class DeleteInstance(Frozen):
    """Unload an instance and cancel what runs on it."""

    type: Literal["DeleteInstance"] = "DeleteInstance"
    version: Literal[1] = 1
    instance_id: InstanceId


class LimitIdleTime(Frozen):
    """Have a model unloaded once nobody has asked for it for a while. It holds until the model is unloaded."""

    type: Literal["LimitIdleTime"] = "LimitIdleTime"
    version: Literal[1] = 1
    model_id: ModelId
    seconds: Annotated[float, Field(ge=0, le=IDLE_MOST)] | None
    """None: it stays until somebody needs the room, as it does where nothing was said."""


class LinkInstances(Frozen):
    """Have one instance compute the prompts that another one answers. Both hold the same model."""

    type: Literal["LinkInstances"] = "LinkInstances"
    version: Literal[1] = 1
    prefill_id: InstanceId
    decode_id: InstanceId


class UnlinkInstances(Frozen):
    """Have an instance compute its prompts by itself again."""

    type: Literal["UnlinkInstances"] = "UnlinkInstances"
    version: Literal[1] = 1
    decode_id: InstanceId


class StartDownload(Frozen):
    """Bring a model onto a node's disk, whether an instance needs it there or not."""

    type: Literal["StartDownload"] = "StartDownload"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId


class CancelDownload(Frozen):
    """Take back a StartDownload. An instance that needs the model still gets it."""

    type: Literal["CancelDownload"] = "CancelDownload"
    version: Literal[1] = 1
    node_id: NodeId
    model_id: ModelId


class RemoveModel(Frozen):
    """Delete a model from the disks of all nodes that have it."""

    type: Literal["RemoveModel"] = "RemoveModel"
    version: Literal[1] = 1
    model_id: ModelId


class AddModel(Frozen):
    """Make a model known that exo does not know by itself."""

    type: Literal["AddModel"] = "AddModel"
    version: Literal[1] = 1
    card: ModelCard


class ForgetModel(Frozen):
    """Take back an AddModel."""

    type: Literal["ForgetModel"] = "ForgetModel"
    version: Literal[1] = 1
    model_id: ModelId


class StartGeneration(Frozen):
    """Answer the request whose payload lies at `request.<task_id>`."""

    type: Literal["StartGeneration"] = "StartGeneration"
    version: Literal[1] = 1
    task_id: Annotated[TaskId, Field(pattern=TOKEN.pattern, max_length=64)]
    model_id: ModelId
    gives: Gives = "text"
    estimated_tokens: NonNegativeInt
    """Of the prompt, by its length."""
    key: str
    """Who pays: the name of the API key, or `anonymous`."""
    client: str = ""
    """Who shares slots with others: the name of the API key, or the caller's address; empty: not known."""
    reply_to: Annotated[ApiId, Field(pattern=TOKEN.pattern, max_length=64)]
    prompt: str | None = None
    """The request itself, only where the operator chose to log prompts."""
    needs_reader: bool = False
    """Whether it is cancelled when no API process reads it any more."""


class CancelGeneration(Frozen):
    """Stop a generation, queued or running."""

    type: Literal["CancelGeneration"] = "CancelGeneration"
    version: Literal[1] = 1
    task_id: TaskId
    reason: str


class CreateKey(Frozen):
    """Let whoever has a secret in. Only its digest travels."""

    type: Literal["CreateKey"] = "CreateKey"
    version: Literal[1] = 1
    key: Name
    digest: Digest
    scopes: Scopes


class RevokeKey(Frozen):
    """Let nobody in with a key any more, for ever."""

    type: Literal["RevokeKey"] = "RevokeKey"
    version: Literal[1] = 1
    key: KeyName


Command = Annotated[
    PlaceInstance
    | DeleteInstance
    | LimitIdleTime
    | LinkInstances
    | UnlinkInstances
    | StartDownload
    | CancelDownload
    | RemoveModel
    | AddModel
    | ForgetModel
    | StartGeneration
    | CancelGeneration
    | CreateKey
    | RevokeKey,
    Field(discriminator="type"),
]
