"""What RDMA over Thunderbolt (mlx.distributed's jaccl) needs: a device from each rank to each other one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exo.domain.ids import NodeId
from exo.domain.placement.rings import COORDINATOR_ORDER, best_links
from exo.domain.state import Node, names_of


@dataclass(frozen=True, slots=True)
class Mesh:
    """As in `Instance`."""

    devices: tuple[tuple[str, ...], ...]
    coordinators: tuple[str, ...]


def find_mesh(nodes: Sequence[Node]) -> Mesh | str:
    """The devices and addresses for nodes in the order of their ranks, or why they cannot talk by RDMA."""
    names = names_of(nodes)
    off = [names[node.node_id] for node in nodes if node.facts.rdma_enabled is False]
    if off:
        return f"RDMA is switched off on {', '.join(off)} (`rdma_ctl enable` in recovery mode switches it on)"
    devices = tuple(tuple("" if one is other else _device(one, other) for other in nodes) for one in nodes)
    for one, row in zip(nodes, devices, strict=True):
        for other, device in zip(nodes, row, strict=True):
            if one is not other and not device:
                return f"{names[one.node_id]} has no RDMA link to {names[other.node_id]}"
    coordinators = _coordinators(nodes, names)
    if isinstance(coordinators, str):
        return coordinators
    return Mesh(devices, coordinators)


def _device(one: Node, other: Node) -> str:
    return next((link.device for link in one.links if link.kind == "rdma" and link.to == other.node_id), "")


def _coordinators(nodes: Sequence[Node], names: Mapping[NodeId, str]) -> tuple[str, ...] | str:
    """The address of rank 0 as each rank reaches it; rank 0 itself listens at all of its own."""
    first = nodes[0]
    hops = best_links(nodes, COORDINATOR_ORDER)
    addresses = ["0.0.0.0"]
    for node in nodes[1:]:
        link = hops.links.get((node.node_id, first.node_id))
        if link is None:
            return f"{names[node.node_id]} has no link with an address to {names[first.node_id]}"
        addresses.append(link.address)
    return tuple(addresses)
