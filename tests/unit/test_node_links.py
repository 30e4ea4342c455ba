"""What a machine says of its wires, read from what its system says."""

import json
import sys
from pathlib import Path

import pytest

from exo.domain.links import addresses_to_try, in_order, kind_of, rdma_links
from exo.domain.node import Interface, Link, ThunderboltPort
from exo.domain.state import Node
from exo.node.hardware_ports import interface_kinds, kind_of_port, parse_hardware_ports
from exo.node.thunderbolt import parse_devices, parse_ports, parse_status, rdma_enabled, thunderbolt_ports
from tests import builders

HARDWARE_PORTS = """
Hardware Port: Ethernet
Device: en0
Ethernet Address: 00:11:22:33:44:55

Hardware Port: Wi-Fi
Device: en1
Ethernet Address: 00:11:22:33:44:56

Hardware Port: Thunderbolt Bridge
Device: bridge0
Ethernet Address: 00:11:22:33:44:57

Hardware Port: Thunderbolt 1
Device: en2
Ethernet Address: 00:11:22:33:44:58

Hardware Port: Thunderbolt 2
Device: en3
Ethernet Address: 00:11:22:33:44:59

Hardware Port: Thunderbolt Ethernet Slot 1
Device: en7
Ethernet Address: 00:11:22:33:44:60

VLAN Configurations
===================
"""
IBV_DEVICES = """
    device                 node GUID
    ------              ----------------
    rdma_en2            1122334455667788
    rdma_en9            1122334455667789
"""


def bus(number: int, domain: str | None, *items: dict[str, str]) -> dict[str, object]:
    plain: dict[str, object] = {
        "_name": f"thunderboltusb4_bus_{number}",
        "device_name_key": "Mac Studio",
        "receptacle_1_tag": {"receptacle_id_key": str(number), "receptacle_status_key": "receptacle_connected"},
    }
    return plain | ({"domain_uuid_key": domain} if domain else {}) | ({"_items": [*items]} if items else {})


PROFILE = json.dumps(
    {
        "SPThunderboltDataType": [
            bus(2, "DOMAIN-2"),
            bus(1, "DOMAIN-1", {"_name": "a disk"}, {"_name": "MacBook Pro", "domain_uuid_key": "PEER"}),
            bus(5, "DOMAIN-5"),
            bus(3, None),
            "no bus",
        ]
    }
)


def test_hardware_ports_are_read() -> None:
    ports = parse_hardware_ports(HARDWARE_PORTS)
    kinds = {name: kind_of_port(port) for name, port in ports.items()}
    assert kinds == {
        "en0": "ethernet",
        "en1": "wifi",
        "bridge0": "thunderbolt",
        "en2": "thunderbolt",
        "en3": "thunderbolt",
        "en7": "ethernet",
    }


@pytest.mark.parametrize("text", ["", "Device: en0", "garbage\nHardware Port", "Hardware Port: Wi-Fi"])
def test_text_without_ports_gives_none(text: str) -> None:
    assert parse_hardware_ports(text) == {}


@pytest.mark.parametrize(
    ("text", "enabled"),
    [("enabled\n", True), ("disabled\n", False), ("RDMA is enabled.", True), ("", None), ("usage: rdma_ctl", None)],
)
def test_the_switch_of_rdma_is_read(text: str, enabled: bool | None) -> None:
    assert parse_status(text) is enabled


def test_devices_are_read() -> None:
    assert parse_devices(IBV_DEVICES) == {"rdma_en2", "rdma_en9"}
    assert parse_devices("    device\n\n  ------\nmlx5_0 11") == frozenset()


def test_ports_are_read_with_their_peers_and_devices() -> None:
    ports = parse_ports(PROFILE, parse_hardware_ports(HARDWARE_PORTS), parse_devices(IBV_DEVICES))
    assert ports == (
        ThunderboltPort(interface="en2", rdma_device="rdma_en2", domain="DOMAIN-1", peer_domain="PEER"),
        ThunderboltPort(interface="en3", rdma_device="", domain="DOMAIN-2"),
    )


@pytest.mark.parametrize("profile", ["", "[]", "{}", '{"SPThunderboltDataType": []}', "no json"])
def test_a_profile_without_ports_gives_none(profile: str) -> None:
    assert parse_ports(profile, {}, ()) == ()


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has some")
def test_a_machine_that_is_no_mac_has_no_thunderbolt_ports_and_no_switch() -> None:
    assert thunderbolt_ports() == ()
    assert rdma_enabled() is None


@pytest.mark.skipif(sys.platform == "darwin", reason="sysfs is Linux's")
def test_the_kernel_says_what_an_interface_is(tmp_path: Path) -> None:
    (tmp_path / "wlan0" / "wireless").mkdir(parents=True)
    (tmp_path / "wlan1" / "phy80211").mkdir(parents=True)
    (tmp_path / "eth0").mkdir()
    (tmp_path / "tb0" / "device").mkdir(parents=True)
    (tmp_path / "drivers" / "thunderbolt-net").mkdir(parents=True)
    (tmp_path / "tb0" / "device" / "driver").symlink_to(tmp_path / "drivers" / "thunderbolt-net")
    kinds = interface_kinds(["wlan0", "wlan1", "eth0", "tb0", "gone"], tmp_path)
    assert kinds == {"wlan0": "wifi", "wlan1": "wifi", "eth0": "ethernet", "tb0": "thunderbolt", "gone": "ethernet"}


def node(name: str, *ports: ThunderboltPort, hostname: str = "", rdma: bool | None = True) -> Node:
    facts = builders.facts(
        hostname or name,
        system="darwin",
        interfaces=(
            Interface(name="en0", addresses=("10.0.0.1", "fd00::1")),
            Interface(name="en1", addresses=("10.0.1.1",), kind="wifi"),
        ),
        rdma_enabled=rdma,
        thunderbolt=ports,
    )
    return builders.node(name, facts=facts)


def test_a_peer_is_looked_for_at_its_ipv4_addresses_and_at_home_where_it_may_be_here() -> None:
    assert addresses_to_try(node("a"), node("b")) == ["10.0.0.1", "10.0.1.1"]
    assert addresses_to_try(node("a", hostname="h"), node("b", hostname="h"))[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "local", "kind"),
    [
        ("127.0.0.1", "127.0.0.1", "loopback"),
        ("10.0.0.1", "10.0.0.1", "loopback"),
        ("10.0.0.9", "10.0.0.1", "ethernet"),
        ("10.0.1.9", "10.0.1.1", "wifi"),
        ("10.0.2.9", "10.0.2.1", "ethernet"),
    ],
)
def test_the_interface_on_this_side_tells_the_kind(address: str, local: str, kind: str) -> None:
    assert kind_of(address, local, node("a").facts.interfaces) == kind


def port(interface: str, domain: str, peer: str, device: bool = True) -> ThunderboltPort:
    name = f"rdma_{interface}" if device else ""
    return ThunderboltPort(interface=interface, rdma_device=name, domain=domain, peer_domain=peer)


def test_a_cable_between_two_ports_that_can_is_an_rdma_link_of_either() -> None:
    one, other = node("a", port("en2", "A", "B"), port("en3", "A2", "X")), node("b", port("en5", "B", "A"))
    assert rdma_links(one, [other]) == [Link(to="b", kind="rdma", device="rdma_en2")]
    assert rdma_links(other, [one]) == [Link(to="a", kind="rdma", device="rdma_en5")]


def test_there_is_no_rdma_where_it_is_off_or_a_port_cannot() -> None:
    one = node("a", port("en2", "A", "B"))
    assert rdma_links(one, [node("b", port("en5", "B", "A"), rdma=False)]) == []
    assert rdma_links(one, [node("b", port("en5", "B", "A"), rdma=None)]) == []
    assert rdma_links(one, [node("b", port("en5", "B", "A", device=False))]) == []
    assert rdma_links(node("a", port("en2", "A", "B"), rdma=False), [node("b", port("en5", "B", "A"))]) == []


def test_links_have_one_order() -> None:
    links = [Link(to=to, kind="ethernet", address=address) for to in "cb" for address in ("2", "1")]
    assert [(link.to, link.address) for link in in_order(links)] == [("b", "1"), ("b", "2"), ("c", "1"), ("c", "2")]
