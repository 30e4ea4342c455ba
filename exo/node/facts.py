"""What this machine is, as the cluster's decisions need it."""

import platform
import shutil
import socket
from pathlib import Path

import psutil

from exo import __version__
from exo.domain.node import NodeFacts
from exo.node.chip import chip
from exo.node.container import memory_limit
from exo.node.cores import usable_cores
from exo.node.engines import EngineChoice, available_engines
from exo.node.gpus import gpus
from exo.node.interfaces import interfaces
from exo.node.thunderbolt import rdma_enabled, thunderbolt_ports


def node_facts(home: Path, engine: EngineChoice, probe_port: int = 0) -> NodeFacts:
    """The facts; `engine`: which it may offer. Memory and cores are those that this process may use, so that a
    container's limits count.

    Takes some milliseconds; on a Mac once a minute some seconds.
    """
    system, own_gpus = platform.system().lower(), gpus()
    return NodeFacts(
        hostname=socket.gethostname(),
        system=system,
        chip=chip(),
        cores=usable_cores(),
        memory_bytes=usable_memory(),
        disk_bytes=shutil.disk_usage(existing(home)).total,
        interfaces=interfaces(),
        gpus=own_gpus,
        engines=available_engines(engine, has_cuda=system != "darwin" and bool(own_gpus)),
        version=__version__,
        probe_port=probe_port,
        rdma_enabled=rdma_enabled(),
        thunderbolt=thunderbolt_ports(),
    )


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
