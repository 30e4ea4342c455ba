"""Whether vLLM can divide a model over the machines of a Ray cluster from here. Ray is not imported for it."""

import socket
from collections.abc import Callable
from contextlib import closing

from exo.domain.ray import RayCluster

PATIENCE = 1.0
"""Seconds for the head of the cluster to take a connection."""


def ray_problem(ray: RayCluster, version_of: Callable[[str], str | None]) -> str:
    """Why it cannot, and what to do about it; empty: it can."""
    if version_of("ray") is None:
        return f"EXO_RAY_NODES={ray.nodes} needs Ray beside vLLM, on each of the machines: `pip install ray`"
    if not _answers(ray.address):
        return (
            f"no Ray cluster answers at {ray.address or 'EXO_RAY_ADDRESS, which is not set'}: `ray start --head` on "
            "one machine and `ray start --address HOST:PORT` on the others start one"
        )
    return ""


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), PATIENCE)):
            return True
    except (OSError, ValueError, OverflowError):
        return False
