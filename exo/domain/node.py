"""A machine of the cluster, as far as decisions depend on it."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.ids import NodeId
from exo.domain.model_card import ModelCard
from exo.domain.shard import EngineName


class Gpu(Frozen):
    """One accelerator, by its vendor's own library."""

    name: str
    total_bytes: NonNegativeInt
    unified: bool = False
    """Shares the machine's memory: its bytes are counted there, not here."""


class Interface(Frozen):
    """One network interface that is up."""

    name: str
    addresses: tuple[str, ...]
    speed_mbit: NonNegativeInt = 0
    """0 where the system does not say."""


class NodeFacts(Frozen):
    """What a machine is. Changes seldom; what moves all the time is in NodeGauges."""

    hostname: str
    system: str
    """linux or darwin."""
    chip: str
    cores: NonNegativeInt
    memory_bytes: NonNegativeInt
    disk_bytes: NonNegativeInt
    """Of the file system that holds the node's home."""
    interfaces: tuple[Interface, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    engines: tuple[EngineName, ...] = ()
    """Engines that can run here, the preferred one first."""
    version: str
    """Of exo."""


class GpuGauges(Frozen):
    """Live figures of one GPU; None where the driver does not say."""

    free_bytes: NonNegativeInt | None = None
    utilization: NonNegativeFloat | None = None
    """0 to 1."""
    temperature_c: NonNegativeFloat | None = None
    power_w: NonNegativeFloat | None = None


class NodeGauges(Frozen):
    """Live figures of a node. Last value wins; never logged."""

    node_id: NodeId
    memory_available_bytes: NonNegativeInt
    disk_free_bytes: NonNegativeInt
    cpu_load: NonNegativeFloat
    """Share of all cores that is busy, 0 to 1."""
    gpus: tuple[GpuGauges, ...] = ()


class Holding(Frozen):
    """A model that a node has, or can get by itself."""

    card: ModelCard
    status: Literal["ready", "obtainable"]
    """ready: complete on disk. obtainable: an installed or fetchable wheel or the hub has it."""
