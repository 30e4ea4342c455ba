"""The network interfaces that other machines may reach us by."""

import socket

import psutil

from exo.domain.node import Interface
from exo.node.hardware_ports import interface_kinds

UNKNOWN_SPEEDS = (0, 65535)
"""What Linux says of a link whose speed it does not know: 0, or -1 read as 16 bits without sign."""


def interfaces() -> tuple[Interface, ...]:
    """Those that are up and have an address, by name, without loopback. Addresses: IPv4 first, no `%scope`."""
    stats = psutil.net_if_stats()
    kinds = interface_kinds(sorted(stats))
    found: list[Interface] = []
    for name, entries in sorted(psutil.net_if_addrs().items()):
        state = stats.get(name)
        families = ((entry.family, entry.address) for entry in entries)
        addresses = [
            address.partition("%")[0]
            for family, address in sorted(families, key=lambda item: item[0] != socket.AF_INET)
            if family in (socket.AF_INET, socket.AF_INET6)
        ]
        if state is None or not state.isup or not addresses or addresses[0].startswith("127.") or addresses == ["::1"]:
            continue
        speed = 0 if state.speed in UNKNOWN_SPEEDS else state.speed
        found.append(Interface(name=name, addresses=tuple(addresses), speed_mbit=max(0, speed), kind=kinds[name]))
    return tuple(found)
