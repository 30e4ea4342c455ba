"""Whether vLLM can divide a model over the machines of a Ray cluster from here. Ray is not imported for it."""

import socket
from collections.abc import Callable
from contextlib import closing

from exo.domain.ray import RayCluster

PATIENCE = 1.0
"""Seconds for the head of the cluster to take a connection."""
FAILURES = 3
"""In a row, after which a head that answered before is taken for gone."""


class RayHead:
    """The head of a Ray cluster, as it is over several looks. One that is slow now and then changes nothing: each
    change of what a node offers is an event for the whole cluster."""

    def __init__(self, cluster: RayCluster) -> None:
        """Nothing is asked yet; until the first answer it does not answer."""
        self.cluster = cluster
        self._failures = FAILURES

    def problem(self, version_of: Callable[[str], str | None]) -> str:
        """Looks. Why vLLM cannot use the cluster, and what to do about it; empty: it can."""
        if version_of("ray") is None:
            return (
                f"EXO_RAY_NODES={self.cluster.nodes} needs Ray beside vLLM, on each of the machines: `pip install ray`"
            )
        self._failures = 0 if _answers(self.cluster.address) else self._failures + 1
        if self._failures < FAILURES:
            return ""
        return (
            f"no Ray cluster answers at {self.cluster.address or 'EXO_RAY_ADDRESS, which is not set'}: `ray start "
            "--head` on one machine and `ray start --address HOST:PORT` on the others start one"
        )


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), PATIENCE)):
            return True
    except (OSError, ValueError, OverflowError):
        return False
