"""What this machine is, as the cluster's decisions need it."""

import platform
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

import psutil

from exo import __version__
from exo.domain.node import Gpu, NodeFacts
from exo.domain.shard import EngineName
from exo.node.chip import chip
from exo.node.container import memory_limit
from exo.node.cores import usable_cores
from exo.node.engines import Host, engine_facts, gpu_problem, offered
from exo.node.gpus import driver_answers, gpus
from exo.node.interfaces import interfaces
from exo.node.machine import machine
from exo.node.pci import has_nvidia_gpu
from exo.node.ray import RayHead
from exo.node.thunderbolt import rdma_enabled, thunderbolt_ports


def node_facts(
    home: Path, chosen: Sequence[EngineName] = (), probe_port: int = 0, ray: RayHead | None = None
) -> NodeFacts:
    """The facts; `chosen` and `ray` as in `engine_facts`. Memory and cores are those that this
    process may use, so that a container's limits count.

    Takes some milliseconds; on a Mac once a minute some seconds.
    """
    own_gpus = gpus()
    host = _host(own_gpus)
    engines = engine_facts(host, chosen, ray=ray)
    return NodeFacts(
        hostname=socket.gethostname(),
        system=host.system,
        chip=chip(),
        cores=usable_cores(),
        memory_bytes=usable_memory(),
        disk_bytes=shutil.disk_usage(existing(home)).total,
        interfaces=interfaces(),
        gpus=own_gpus,
        engines=offered(engines, chosen),
        version=__version__,
        probe_port=probe_port,
        rdma_enabled=rdma_enabled(),
        thunderbolt=thunderbolt_ports(),
        machine=machine(),
        engine_facts=engines,
        gpu_problem=gpu_problem(host, engines),
    )


def _host(gpus: Sequence[Gpu]) -> Host:
    system = platform.system().lower()
    if system == "darwin":
        return Host(system, has_apple_gpu=bool(gpus))
    if gpus:
        return Host(system, "works")
    return Host(system, "no driver" if has_nvidia_gpu() and not driver_answers() else "none")


def usable_memory() -> int:
    """Bytes of memory: the machine's, or the container's limit where that is less."""
    total = psutil.virtual_memory().total
    limit = memory_limit()
    return total if limit is None else min(total, limit)


def existing(folder: Path) -> Path:
    """The folder, else its nearest parent that exists: a new node's home is not there yet."""
    while not folder.exists():
        folder = folder.parent
    return folder
