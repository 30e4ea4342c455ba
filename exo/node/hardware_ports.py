"""What kind of wire, or none, a network interface is."""

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from exo.domain.node import InterfaceKind
from exo.node.command import output_of

NETWORK_CLASS = Path("/sys/class/net")
NETWORKSETUP = ("/usr/sbin/networksetup", "-listallhardwareports")
NETWORKSETUP_SECONDS = 5.0


def interface_kinds(names: Iterable[str], network_class: Path = NETWORK_CLASS) -> dict[str, InterfaceKind]:
    """The kind of each interface; whatever is not known to be another counts as Ethernet."""
    if sys.platform == "darwin":
        ports = hardware_ports(tuple(names))
        return {name: kind_of_port(ports.get(name, "")) for name in names}
    return {name: _linux_kind(network_class / name) for name in names}


@cache
def hardware_ports(names: tuple[str, ...]) -> Mapping[str, str]:
    """On a Mac: interface -> what its port is called. Asked again when there are others than `names`."""
    del names  # the key of the cache
    return asked_hardware_ports()


def asked_hardware_ports() -> dict[str, str]:
    """On a Mac: interface -> what its port is called; elsewhere none. May take some seconds."""
    return parse_hardware_ports(output_of(NETWORKSETUP, NETWORKSETUP_SECONDS) or "")


def parse_hardware_ports(text: str) -> dict[str, str]:
    """Of `networksetup -listallhardwareports`: {"en0": "Wi-Fi", "en5": "Thunderbolt 1"}."""
    ports: dict[str, str] = {}
    port = ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "Hardware Port":
            port = value.strip()
        elif name == "Device" and port:
            ports[value.strip()] = port
    return ports


def kind_of_port(port: str) -> InterfaceKind:
    """By what macOS calls the port; the bridge over all Thunderbolt ports is one of them."""
    if port.startswith("Wi-Fi"):
        return "wifi"
    return "thunderbolt" if port.startswith("Thunderbolt") and "Ethernet" not in port else "ethernet"


def _linux_kind(interface: Path) -> InterfaceKind:
    if (interface / "wireless").exists() or (interface / "phy80211").exists():
        return "wifi"
    driver = interface / "device" / "driver"
    return "thunderbolt" if driver.resolve().name == "thunderbolt-net" else "ethernet"
