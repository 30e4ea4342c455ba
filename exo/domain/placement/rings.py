"""Directed rings over measured links: rank r reaches rank r + 1, and the last one the first."""

from collections.abc import Mapping, Sequence

from exo.domain.ids import NodeId
from exo.domain.node import Link, LinkKind
from exo.domain.state import Node

RING_ORDER: tuple[LinkKind, ...] = ("loopback", "thunderbolt", "ethernet", "wifi")
"""The better links for tensors first."""
COORDINATOR_ORDER: tuple[LinkKind, ...] = ("loopback", "ethernet", "wifi", "thunderbolt")
"""For the few bytes by which an RDMA group is brought together: what is not busy with tensors first."""
STEPS_MOST = 20_000
"""Of one search. Where links are many a ring is found at once, and where they are few there is little to try."""

Hops = Mapping[tuple[NodeId, NodeId], Link]
"""The best link from one node to another, where there is one."""


def best_links(nodes: Sequence[Node], order: Sequence[LinkKind]) -> Hops:
    """Between each two nodes, the best of the links that have an address: by kind, then by round trip."""
    places = {kind: place for place, kind in enumerate(order)}
    known = {node.node_id for node in nodes}
    hops: dict[tuple[NodeId, NodeId], Link] = {}
    for node in nodes:
        usable = [link for link in node.links if link.kind in places and link.to in known and link.to != node.node_id]
        for link in sorted(usable, key=lambda link: (places[link.kind], link.round_trip_ms, link.address)):
            hops.setdefault((node.node_id, link.to), link)
    return hops


def find_ring(node_ids: Sequence[NodeId], hops: Hops) -> tuple[NodeId, ...] | None:
    """All of these nodes in an order in which each reaches the next, the first of them first; None without one.

    The worst link of the ring is as good as it can be: rings over the best kinds alone are tried first.
    """
    if len(node_ids) == 1:
        return tuple(node_ids)
    for count in range(1, len(RING_ORDER) + 1):
        kinds = RING_ORDER[:count]
        allowed = {pair for pair, link in hops.items() if link.kind in kinds}
        ring = _Search(node_ids, allowed).ring()
        if ring is not None:
            return ring
    return None


class _Search:
    """Depth first, from the first node."""

    def __init__(self, node_ids: Sequence[NodeId], allowed: set[tuple[NodeId, NodeId]]) -> None:
        self._node_ids = node_ids
        self._allowed = allowed
        self._steps = 0

    def ring(self) -> tuple[NodeId, ...] | None:
        for one in self._node_ids:
            others = [other for other in self._node_ids if other != one]
            leaves = any((one, other) in self._allowed for other in others)
            comes = any((other, one) in self._allowed for other in others)
            if not (leaves and comes):
                return None
        return self._extended((self._node_ids[0],))

    def _extended(self, path: tuple[NodeId, ...]) -> tuple[NodeId, ...] | None:
        if len(path) == len(self._node_ids):
            return path if (path[-1], path[0]) in self._allowed else None
        self._steps += 1
        if self._steps > STEPS_MOST:
            return None
        for following in self._node_ids:
            if following not in path and (path[-1], following) in self._allowed:
                ring = self._extended((*path, following))
                if ring is not None:
                    return ring
        return None
