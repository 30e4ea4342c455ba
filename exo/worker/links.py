"""The links from this node to the others, measured: which address of which node answers, over what, how fast."""

import asyncio
from dataclasses import dataclass

from exo.domain.ids import NodeId
from exo.domain.links import addresses_to_try, in_order, kind_of, rdma_links
from exo.domain.node import Link
from exo.domain.state import Node, State
from exo.node.probe import Answer, Identity, probe

MISSES = 3
"""Probes in a row that fail before a link is gone: slow is not dead."""
PROBES_MOST = 32
"""At a time."""


@dataclass(slots=True)
class _Seen:
    link: Link
    misses: int = 0


class Links:
    """What is known of the links from one node. A link keeps the figures of when it was first seen."""

    def __init__(self, cluster: str, node_id: NodeId) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._seen: dict[tuple[NodeId, str], _Seen] = {}
        self._probing = asyncio.Semaphore(PROBES_MOST)

    async def measure(self, state: State) -> tuple[Link, ...]:
        """The links as of now, once every address of every node in State was tried. None before State has this node."""
        node = state.nodes.get(self._node_id)
        if node is None:
            return ()
        peers = [peer for _, peer in sorted(state.nodes.items()) if peer.node_id != self._node_id]
        tries = [(peer, address) for peer in peers for address in addresses_to_try(node, peer)]
        self._forget({(peer.node_id, address) for peer, address in tries})
        answers = await asyncio.gather(*(self._probe(peer, address) for peer, address in tries))
        for (peer, address), answer in zip(tries, answers, strict=True):
            self._take(node, peer.node_id, address, answer)
        measured = [seen.link for seen in self._seen.values()]
        return in_order([*measured, *rdma_links(node, peers)])

    async def _probe(self, peer: Node, address: str) -> Answer | None:
        if not peer.facts.probe_port:
            return None
        async with self._probing:
            identity = Identity(self._cluster, peer.node_id, peer.boot_id)
            return await probe(address, peer.facts.probe_port, identity)

    def _forget(self, places: set[tuple[NodeId, str]]) -> None:
        """All but links to places where somebody may still be."""
        self._seen = {place: seen for place, seen in self._seen.items() if place in places}

    def _take(self, node: Node, to: NodeId, address: str, answer: Answer | None) -> None:
        place = (to, address)
        seen = self._seen.get(place)
        if answer is None:
            if seen is not None:
                seen.misses += 1
                if seen.misses >= MISSES:
                    del self._seen[place]
            return
        kind = kind_of(address, answer.local_address, node.facts.interfaces)
        if seen is not None and seen.link.kind == kind:
            seen.misses = 0
            return
        link = Link(to=to, kind=kind, address=address, round_trip_ms=round(answer.round_trip_ms, 3))
        self._seen[place] = _Seen(link)
