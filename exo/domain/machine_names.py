"""What people call the nodes of a cluster."""

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

SHORT_ID = 8
"""Characters of a node's id that people are shown."""

Id = TypeVar("Id", bound=str)


def machine_names(hostnames: Mapping[Id, str]) -> dict[Id, str]:
    """Each node's hostname, by node id; `studio (4f2a91c0)` where two nodes have the same."""
    count = Counter(hostnames.values())
    return {
        node_id: hostname if count[hostname] == 1 else f"{hostname} ({node_id[:SHORT_ID]})"
        for node_id, hostname in hostnames.items()
    }
