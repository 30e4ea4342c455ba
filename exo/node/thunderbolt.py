"""The Thunderbolt ports of a Mac, what is plugged into them, and whether they can do RDMA.

Elsewhere the programs that are asked are not there, and the answer is: none.

RDMA over Thunderbolt 5 is what mlx.distributed's `jaccl` runs on:
https://ml-explore.github.io/mlx/build/html/usage/distributed.html
"""

import json
import time
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import cast

from exo.domain.node import ThunderboltPort
from exo.node.command import output_of
from exo.node.hardware_ports import asked_hardware_ports

SYSTEM_PROFILER = ("/usr/sbin/system_profiler", "SPThunderboltDataType", "-json")
SYSTEM_PROFILER_SECONDS = 20.0
RDMA_CTL = ("rdma_ctl", "status")
IBV_DEVICES = ("ibv_devices",)
RDMA_SECONDS = 5.0
KEPT = 60.0
"""Seconds that an answer is kept for: asking takes one, and cables are seldom moved."""


def thunderbolt_ports() -> tuple[ThunderboltPort, ...]:
    """The ports, by interface, as of the last minute. May take some seconds."""
    return _ports(_period())


def rdma_enabled() -> bool | None:
    """Whether RDMA is switched on, as of the last minute; None where the machine has no such switch."""
    return _enabled(_period())


def _period() -> int:
    return int(time.monotonic() // KEPT)


@lru_cache(maxsize=1)
def _ports(_period: int) -> tuple[ThunderboltPort, ...]:
    return parse_ports(
        output_of(SYSTEM_PROFILER, SYSTEM_PROFILER_SECONDS) or "",
        asked_hardware_ports(),
        parse_devices(output_of(IBV_DEVICES, RDMA_SECONDS) or ""),
    )


@lru_cache(maxsize=1)
def _enabled(_period: int) -> bool | None:
    return parse_status(output_of(RDMA_CTL, RDMA_SECONDS) or "")


def parse_status(text: str) -> bool | None:
    """Of `rdma_ctl status`: `enabled` or `disabled`, alone or at the end of a sentence; None for anything else."""
    words = text.lower().replace(".", " ").split()
    if "disabled" in words:
        return False
    return True if "enabled" in words else None


def parse_devices(text: str) -> frozenset[str]:
    """Of `ibv_devices`: the names in its first column, such as `rdma_en5`."""
    return frozenset(line.split()[0] for line in text.splitlines() if line.split()[:1] and "rdma_" in line.split()[0])


def parse_ports(profile: str, hardware: Mapping[str, str], devices: Collection[str]) -> tuple[ThunderboltPort, ...]:
    """Of `system_profiler SPThunderboltDataType -json`, by interface. `hardware`: interface -> name of its port.

    A bus that lacks what is needed is left out: a Mac without ports, or another version's format, has none.
    """
    try:
        buses = json.loads(profile)["SPThunderboltDataType"]
    except (ValueError, KeyError, TypeError):
        return ()
    interfaces = {port: interface for interface, port in hardware.items()}
    found = [port for bus in buses if (port := _port(bus, interfaces, devices)) is not None]
    return tuple(sorted(found, key=lambda port: port.interface))


def _port(bus: object, interfaces: Mapping[str, str], devices: Collection[str]) -> ThunderboltPort | None:
    fields = cast("dict[str, object]", bus) if isinstance(bus, dict) else {}
    domain, receptacle = fields.get("domain_uuid_key"), fields.get("receptacle_1_tag")
    if not isinstance(domain, str) or not isinstance(receptacle, dict):
        return None
    number = cast("dict[str, object]", receptacle).get("receptacle_id_key")
    interface = interfaces.get(f"Thunderbolt {number}")
    if interface is None:
        return None
    device = f"rdma_{interface}"
    return ThunderboltPort(
        interface=interface,
        rdma_device=device if device in devices else "",
        domain=domain,
        peer_domain=_peer_domain(fields.get("_items")),
    )


def _peer_domain(items: object) -> str:
    """Of what is plugged in, another computer has a domain of its own; a disk or a display has none."""
    for item in cast("list[object]", items) if isinstance(items, list) else []:
        domain = cast("dict[str, object]", item).get("domain_uuid_key") if isinstance(item, dict) else None
        if isinstance(domain, str):
            return domain
    return ""
