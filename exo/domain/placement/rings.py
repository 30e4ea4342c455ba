"""Directed rings over measured links: rank r reaches rank r + 1, and the last one the first."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from exo.domain.ids import NodeId
from exo.domain.node import Link, LinkKind
from exo.domain.state import Node

RING_ORDER: tuple[LinkKind, ...] = ("loopback", "thunderbolt", "ethernet", "wifi")
"""The better links for tensors first."""
COORDINATOR_ORDER: tuple[LinkKind, ...] = ("loopback", "ethernet", "wifi", "thunderbolt")
"""For the few bytes by which an RDMA group is brought together: what is not busy with tensors first."""
STEPS_MOST = 2000
"""Of one search. Where links are many a ring is found at once, and where they are few there is little to try."""

Hop = tuple[NodeId, NodeId]


@dataclass(frozen=True, slots=True)
class Hops:
    """The best link from each node to each other one that it reaches."""

    links: Mapping[Hop, Link]
    tiers: tuple[frozenset[Hop], ...]
    """Over the best kind alone, over the best two, and so on; the last has all."""


def best_links(nodes: Sequence[Node], order: Sequence[LinkKind]) -> Hops:
    """Between each two nodes, the best of the links that have an address: by kind, then by milliseconds."""
    places = {kind: place for place, kind in enumerate(order)}
    known = {node.node_id for node in nodes}
    links: dict[Hop, Link] = {}
    for node in nodes:
        usable = [link for link in node.links if link.kind in places and link.to in known and link.to != node.node_id]
        for link in sorted(usable, key=lambda link: (places[link.kind], int(link.round_trip_ms), link.address)):
            links.setdefault((node.node_id, link.to), link)
    kinds = sorted({places[link.kind] for link in links.values()})
    tiers = [frozenset(hop for hop, link in links.items() if places[link.kind] <= worst) for worst in kinds]
    return Hops(links, tuple(tiers))


def find_ring(node_ids: Sequence[NodeId], hops: Hops) -> tuple[NodeId, ...] | None:
    """All of these nodes in an order in which each reaches the next, the first of them first; None without one.

    The worst link of the ring is as good as it can be: rings over the best kinds alone are tried first.
    """
    if len(node_ids) == 1:
        return tuple(node_ids)
    rings = (_Search(node_ids, allowed).ring() for allowed in hops.tiers)
    return next((ring for ring in rings if ring is not None), None)


class _Search:
    """Depth first, from the first node."""

    def __init__(self, node_ids: Sequence[NodeId], allowed: Set[Hop]) -> None:
        self._first = node_ids[0]
        self._next = {one: [to for to in node_ids if (one, to) in allowed] for one in node_ids}
        self._steps = 0

    def ring(self) -> tuple[NodeId, ...] | None:
        reached = {to for following in self._next.values() for to in following}
        if not all(self._next.values()) or len(reached) < len(self._next):
            return None
        return self._extended((self._first,))

    def _extended(self, path: tuple[NodeId, ...]) -> tuple[NodeId, ...] | None:
        following = self._next[path[-1]]
        if len(path) == len(self._next):
            return path if self._first in following else None
        self._steps += 1
        if self._steps > STEPS_MOST:
            return None
        longer = (self._extended((*path, to)) for to in following if to not in path)
        return next((ring for ring in longer if ring is not None), None)
