"""A machine of the cluster, as far as decisions depend on it."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from exo.domain.base import Frozen
from exo.domain.ids import ModelId, NodeId
from exo.domain.model_card import ModelCard
from exo.domain.shard import EngineName


class Gpu(Frozen):
    """One accelerator, by its vendor's own library."""

    name: str
    total_bytes: NonNegativeInt
    unified: bool = False
    """Shares the machine's memory: its bytes are counted there, not here."""


MachineKind = Literal["laptop", "desktop", "server", "unknown"]


class Machine(Frozen):
    """What the computer is, apart from its parts."""

    model: str = ""
    """As its maker calls it: `NVIDIA DGX Spark`, `Mac Studio`; empty where it does not say, as in most containers."""
    kind: MachineKind = "unknown"


class Package(Frozen):
    """An installed Python package."""

    name: str
    version: str


class EngineFacts(Frozen):
    """One engine on a machine, whether it can run there or not."""

    name: EngineName
    runs: bool = False
    """Whether it can, and may."""
    device: Literal["cpu", "gpu"] = "cpu"
    """What it computes on there."""
    machines: PositiveInt = 1
    """Over how many machines like this one it divides a model by its own means: vLLM's Ray."""
    packages: tuple[Package, ...] = ()
    """Those of which it consists, as far as they are installed."""
    problem: str = ""
    """Why it does not run, or not on the machine's GPU, and what to do about it; empty: nothing is in the way."""


InterfaceKind = Literal["ethernet", "wifi", "thunderbolt"]


class Interface(Frozen):
    """One network interface that is up."""

    name: str
    addresses: tuple[str, ...]
    speed_mbit: NonNegativeInt = 0
    """0 where the system does not say."""
    kind: InterfaceKind = "ethernet"


class ThunderboltPort(Frozen):
    """One Thunderbolt port of a Mac, and what is plugged into it."""

    interface: str
    """Its network interface, such as `en5`."""
    rdma_device: str
    """Its RDMA device, such as `rdma_en5`; empty where it has none."""
    domain: str
    """The port's own domain UUID."""
    peer_domain: str = ""
    """That of the port at the other end of the cable; empty without one."""


LinkKind = Literal["loopback", "ethernet", "wifi", "thunderbolt", "rdma"]


class Link(Frozen):
    """A way from one node to another that was measured to work."""

    to: NodeId
    kind: LinkKind
    """By the interface on this side. `loopback`: both nodes are on one machine."""
    address: str = ""
    """At which the other node answered; empty for RDMA."""
    device: str = ""
    """The RDMA device on this side; empty for the others."""
    round_trip_ms: NonNegativeFloat = 0.0
    """Of a TCP connection, when the link was first seen."""


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
    probe_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Where the worker says who it is, so that others can measure links to it; 0: nowhere."""
    rdma_enabled: bool | None = None
    """Whether RDMA over Thunderbolt is switched on (`rdma_ctl`); None where the machine has no such switch."""
    thunderbolt: tuple[ThunderboltPort, ...] = ()
    """The ports of a Mac; empty elsewhere."""
    machine: Machine = Machine()
    engine_facts: tuple[EngineFacts, ...] = ()
    """Of every engine for people's models, those in `engines` and the others."""
    gpu_problem: str = ""
    """Why no engine uses the machine's GPU, and what to do about it; empty: one does, or there is none."""

    def facts_of(self, engine: EngineName) -> EngineFacts | None:
        """What is known of an engine here; None of one that is not for people's models."""
        return next((one for one in self.engine_facts if one.name == engine), None)


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
    held: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of an obtainable one, the part that has come already, in tenths."""


class DamagedModel(Frozen):
    """A model folder on a node's disk that cannot be loaded as it is. No holding: there may be nothing to make a card
    of."""

    model_id: ModelId
    """What its folder is named for."""
    reason: str
    """Names the file, and says what to do."""
