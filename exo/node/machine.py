"""What this computer is: its maker's name for it, and whether it is carried about, stands on a desk or in a rack."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from exo.domain.node import Machine, MachineKind
from exo.node.command import output_of
from exo.node.small_file import text_of

DMI = Path("/sys/class/dmi/id")
POWER_SUPPLIES = Path("/sys/class/power_supply")
DEVICE_TREE_MODEL = Path("/sys/firmware/devicetree/base/model")
SYSTEM_PROFILER = ("/usr/sbin/system_profiler", "-json", "SPHardwareDataType")
SYSTEM_PROFILER_SECONDS = 10.0

LAPTOPS = frozenset({8, 9, 10, 14, 31, 32})
SERVERS = frozenset({17, 23, 25, 28, 29})
UNSAID = frozenset({0, 1, 2})
"""Types of a chassis (SMBIOS 3.7, 7.4.1: https://www.dmtf.org/standards/smbios); what is in none stands on a desk.
Virtual machines mostly say 1, "other"."""
ON_A_DESK = ("dgx spark", "gx10")
"""In the names of small machines whose firmware calls them servers: DGX Spark and its relatives."""
PLACEHOLDERS = ("", "none", "to be filled by o.e.m.", "system product name", "default string", "not specified")
"""What firmware says for want of a name."""


def machine() -> Machine:
    """This one. Where nothing says what it is, as in most containers, both fields say so."""
    return _PROFILE.machine() if sys.platform == "darwin" else linux_machine()


def linux_machine(
    dmi: Path = DMI, power_supplies: Path = POWER_SUPPLIES, device_tree_model: Path = DEVICE_TREE_MODEL
) -> Machine:
    """By what the firmware says (DMI), or the device tree of an ARM board, and by whether there is a battery."""
    model = product(text_of(dmi / "sys_vendor"), text_of(dmi / "product_name")) or text_of(device_tree_model)
    return Machine(model=model, kind=kind_of(model, text_of(dmi / "chassis_type"), _has_battery(power_supplies)))


def product(maker: str, name: str) -> str:
    """What its maker calls the machine, the maker's own name included; empty for placeholders."""
    maker, name = maker.replace("_", " ").strip(), name.replace("_", " ").strip()
    if name.lower() in PLACEHOLDERS:
        return ""
    if maker.lower() in PLACEHOLDERS or maker.split()[0].lower() in name.lower():
        return name
    return f"{maker} {name}"


def kind_of(model: str, chassis: str, has_battery: bool) -> MachineKind:
    """`chassis`: the number that the firmware gives; empty where there is none."""
    number = int(chassis) if chassis.isdigit() else 0
    if any(name in model.lower() for name in ON_A_DESK):
        return "desktop"
    if number in LAPTOPS or has_battery:
        return "laptop"
    if number in SERVERS:
        return "server"
    return "unknown" if number in UNSAID else "desktop"


def parse_system_profiler(text: str) -> Machine:
    """Of `system_profiler -json SPHardwareDataType`: `MacBook Pro`, a laptop."""
    try:
        (hardware,) = cast("dict[str, list[dict[str, object]]]", json.loads(text))["SPHardwareDataType"]
        model = str(hardware["machine_name"])
    except (ValueError, KeyError, TypeError):
        return Machine()
    return Machine(model=model, kind="laptop" if "MacBook" in model else "desktop")


class MacProfile:
    """What a Mac says of itself. Asking takes a while: an answer is kept, and without one it is asked again."""

    def __init__(self, ask: Callable[[], str | None]) -> None:
        """`ask`: what `system_profiler` says, None where it fails or takes too long."""
        self._ask = ask
        self._machine: Machine | None = None

    def machine(self) -> Machine:
        """As `parse_system_profiler`; a machine of which nothing is known until there is an answer."""
        if self._machine is None and (text := self._ask()) is not None:
            self._machine = parse_system_profiler(text)
        return self._machine or Machine()


_PROFILE = MacProfile(lambda: output_of(SYSTEM_PROFILER, SYSTEM_PROFILER_SECONDS))


def _has_battery(power_supplies: Path) -> bool:
    """A battery of the machine's own: those of a mouse or a headset have the scope `Device`."""
    supplies = sorted(power_supplies.iterdir()) if power_supplies.is_dir() else []
    return any(text_of(one / "type") == "Battery" and text_of(one / "scope") != "Device" for one in supplies)
