"""Which links there may be between nodes, and what kind they are, by what the nodes say of themselves."""

from collections.abc import Iterable, Sequence

from exo.domain.ids import NodeId
from exo.domain.node import Interface, Link, LinkKind
from exo.domain.state import Node

LOOPBACK = "127.0.0.1"


def addresses_to_try(node: Node, peer: Node) -> list[str]:
    """Where a peer may answer: at the IPv4 addresses that it has, and at home where it may be on the same machine."""
    addresses = [
        address for interface in peer.facts.interfaces for address in interface.addresses if ":" not in address
    ]
    same_machine = [LOOPBACK] if node.facts.hostname == peer.facts.hostname else []
    return [*same_machine, *dict.fromkeys(addresses)]


def kind_of(address: str, local_address: str, interfaces: Sequence[Interface]) -> LinkKind:
    """The kind of a connection from `local_address`, of one of our `interfaces`, to `address`."""
    own: dict[str, LinkKind] = {
        own_address: interface.kind for interface in interfaces for own_address in interface.addresses
    }
    if address.startswith("127.") or address in own:
        return "loopback"
    return own.get(local_address, "ethernet")


def rdma_links(node: Node, peers: Iterable[Node]) -> list[Link]:
    """The RDMA links of a node: a cable joins one of its ports to one of theirs, and both have a device."""
    if not node.facts.rdma_enabled:
        return []
    theirs: dict[str, NodeId] = {
        port.domain: peer.node_id
        for peer in peers
        if peer.facts.rdma_enabled
        for port in peer.facts.thunderbolt
        if port.rdma_device
    }
    return [
        Link(to=theirs[port.peer_domain], kind="rdma", device=port.rdma_device)
        for port in node.facts.thunderbolt
        if port.rdma_device and port.peer_domain in theirs
    ]


def in_order(links: Iterable[Link]) -> tuple[Link, ...]:
    """Links as State keeps them."""
    return tuple(sorted(links, key=lambda link: (link.to, link.kind, link.address, link.device)))
