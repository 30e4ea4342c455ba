"""How this machine is doing right now."""

import shutil
from pathlib import Path

import psutil

from exo.domain.ids import NodeId
from exo.domain.node import NodeGauges
from exo.node.container import available_memory
from exo.node.facts import existing
from exo.node.gpus import gpu_gauges


def node_gauges(node_id: NodeId, home: Path) -> NodeGauges:
    """Live figures. `cpu_load` is the mean since the call before; the first call of a process says 0."""
    return NodeGauges(
        node_id=node_id,
        memory_available_bytes=available_memory(),
        disk_free_bytes=shutil.disk_usage(existing(home)).free,
        cpu_load=max(0.0, psutil.cpu_percent(interval=None) / 100),
        gpus=gpu_gauges(),
    )
