"""What a node says of itself: id, memory in a container, chip, engines, links, and GPUs of every temper."""

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from exo.domain.ids import NodeId, is_token
from exo.errors import Fatal
from exo.node.chip import chip, from_cpuinfo
from exo.node.container import cpu_quota, memory_left, memory_limit
from exo.node.cores import OthersUse, compute_cores, usable_cores
from exo.node.facts import node_facts, usable_memory
from exo.node.gauges import node_gauges
from exo.node.gpus import driver_answers, gpu_gauges, gpus
from exo.node.identity import node_id
from exo.node.interfaces import interfaces
from exo.node.visible_gpus import VARIABLE, visible


def test_a_node_keeps_its_id(tmp_path: Path) -> None:
    first = node_id(tmp_path / "home")
    assert is_token(first)
    assert len(first) == 32
    assert node_id(tmp_path / "home") == first
    assert node_id(tmp_path / "other") != first
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["node_id"]


def test_processes_that_start_together_get_one_id(tmp_path: Path) -> None:
    start, ids = threading.Barrier(8), list[NodeId]()

    def ask() -> None:
        start.wait(10)
        ids.append(node_id(tmp_path))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(ids) == 8
    assert len(set(ids)) == 1


@pytest.mark.parametrize("content", ["", "two words", "a.b", ">", "x" * 65, "a\nb"])
def test_a_file_that_holds_no_id_is_told_and_kept(tmp_path: Path, content: str) -> None:
    (tmp_path / "node_id").write_text(content)
    with pytest.raises(Fatal, match="node_id holds no node id: delete it"):
        node_id(tmp_path)
    assert (tmp_path / "node_id").read_text() == content


def cgroup(folder: Path, **limits: str) -> tuple[Path, Path]:
    """A tree `/outer/inner` as the kernel shows it, and our place in it."""
    root, own = folder / "cgroup", folder / "own"
    (root / "outer" / "inner").mkdir(parents=True)
    own.write_text("0::/outer/inner\n")
    for name, text in limits.items():
        group = {"root": root, "outer": root / "outer", "inner": root / "outer" / "inner"}[name]
        (group / "memory.max").write_text(text + "\n")
        (group / "memory.current").write_text("600\n")
        (group / "memory.stat").write_text("anon 100\ninactive_file 150\n")
    return root, own


def test_the_least_limit_of_a_container_and_what_contains_it_counts(tmp_path: Path) -> None:
    root, own = cgroup(tmp_path, outer="1000", inner="2000", root="max")
    assert memory_limit(root, own) == 1000
    assert memory_left(root, own) == 1000 - 600 + 150


def test_a_container_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    root, own = cgroup(tmp_path, inner="200")
    assert memory_left(root, own) == 0


@pytest.mark.parametrize("text", ["max", "", "-1"])
def test_no_limit_is_none(tmp_path: Path, text: str) -> None:
    root, own = cgroup(tmp_path, inner=text)
    assert memory_limit(root, own) is None
    assert memory_left(root, own) is None


def test_without_cgroup_v2_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path / "absent") is None
    (tmp_path / "own").write_text("4:memory:/docker/abc\n")
    assert memory_limit(tmp_path, tmp_path / "own") is None


def test_the_least_quota_of_processor_time_counts(tmp_path: Path) -> None:
    root, own = cgroup(tmp_path)
    assert cpu_quota(root, own) is None
    (root / "outer" / "cpu.max").write_text("150000 100000\n")
    (root / "outer" / "inner" / "cpu.max").write_text("max 100000\n")
    assert cpu_quota(root, own) == 1.5
    (root / "outer" / "cpu.max").write_text("0 0 0\n")
    assert cpu_quota(root, own) is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs processor affinity")
def test_threads_of_one_core_count_once(tmp_path: Path) -> None:
    assert compute_cores(tmp_path) == usable_cores()
    for processor in os.sched_getaffinity(0):
        topology = tmp_path / f"cpu{processor}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0-255\n")
    assert compute_cores(tmp_path) == 1


def test_what_others_use_is_more_with_a_busy_process_beside_us() -> None:
    use = OthersUse()
    subprocess.run([sys.executable, "-c", "for _ in range(10_000_000): pass"], check=True)
    assert use.measure() > 0.2


def test_the_chips_name_is_the_makers(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel\t\t: 85\nmodel name\t: AMD Ryzen 9  7950X\n\nmodel name\t: other\n")
    assert from_cpuinfo(file) == "AMD Ryzen 9 7950X"
    file.write_text("processor\t: 0\nBogoMIPS\t: 48.00\n")
    assert from_cpuinfo(file) is None
    assert from_cpuinfo(tmp_path / "absent") is None
    assert chip(tmp_path / "absent")


def test_an_arm_chip_is_named_by_its_kinds_of_cores_the_large_ones_first(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    cores = "".join(f"CPU implementer\t: 0x41\nCPU part\t: {part}\n\n" for part in ("0xd87", "0xd85", "0xd87"))
    file.write_text(cores)
    assert from_cpuinfo(file) == "Cortex-X925 and Cortex-A725"
    file.write_text(cores.replace("0x41", "0x99"))
    assert from_cpuinfo(file) is None


def test_interfaces_have_addresses_and_are_not_loopback() -> None:
    for interface in interfaces():
        assert interface.addresses
        assert not any(address.startswith("127.") or "%" in address for address in interface.addresses)


def test_the_facts_are_those_of_this_machine(tmp_path: Path) -> None:
    facts = node_facts(tmp_path / "not" / "there" / "yet", ["scripted"])
    assert 0 < facts.memory_bytes == usable_memory() <= psutil.virtual_memory().total
    assert facts.cores >= 1
    assert facts.disk_bytes > 0
    assert facts.hostname
    assert facts.system in ("linux", "darwin")
    assert facts.engines == ("scripted",)
    assert not (tmp_path / "not").exists()


def test_the_gauges_stay_within_the_facts(tmp_path: Path) -> None:
    facts, gauges = node_facts(tmp_path, ["scripted"]), node_gauges(NodeId("a"), tmp_path)
    assert 0 < gauges.memory_available_bytes <= facts.memory_bytes
    assert gauges.disk_free_bytes <= facts.disk_bytes
    assert 0 <= gauges.cpu_load <= 1
    assert len(gauges.gpus) == len(facts.gpus)


class DriverError(Exception):
    """What the fake driver raises."""


@dataclass
class Sizes:
    total: int
    free: int


@dataclass
class Load:
    gpu: int


class Driver:
    """A management library with one GPU that answers, or not, as it is told to."""

    NVMLError = DriverError

    def __init__(self, name: str | bytes = "NVIDIA H200", refuses: tuple[str, ...] = ()) -> None:
        self.name, self.refuses, self.open = name, refuses, 0

    def _ask(self, what: str) -> None:
        if what in self.refuses:
            raise DriverError(what)

    def nvmlInit(self) -> None:
        self._ask("init")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._ask("count")
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object:
        self._ask("handle")
        return index

    def nvmlDeviceGetUUID(self, handle: object, /) -> str | bytes:
        self._ask("uuid")
        return f"GPU-{handle}0".encode()

    def nvmlDeviceGetName(self, handle: object, /) -> str | bytes:
        self._ask("name")
        return self.name

    def nvmlDeviceGetMemoryInfo(self, handle: object, /) -> Sizes:
        self._ask("memory")
        return Sizes(total=100, free=40)

    def nvmlDeviceGetUtilizationRates(self, handle: object, /) -> Load:
        self._ask("load")
        return Load(gpu=50)

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int, /) -> int:
        self._ask("temperature")
        return 61

    def nvmlDeviceGetPowerUsage(self, handle: object, /) -> int:
        self._ask("power")
        return 250_000


linux_only = pytest.mark.skipif(not Path("/proc").exists(), reason="a Mac's GPU is not asked through NVML")


@linux_only
def test_a_gpu_is_described_and_measured() -> None:
    driver = Driver(name=b"NVIDIA H200")
    (gpu,) = gpus(driver)
    assert (gpu.name, gpu.total_bytes, gpu.unified) == ("NVIDIA H200", 100, False)
    (gauges,) = gpu_gauges(driver)
    assert (gauges.free_bytes, gauges.utilization, gauges.temperature_c, gauges.power_w) == (40, 0.5, 61, 250)
    assert driver.open == 0


@linux_only
@pytest.mark.parametrize("driver", [Driver("NVIDIA GB10"), Driver("NVIDIA something", refuses=("memory",))])
def test_unified_memory_is_not_counted_a_second_time(driver: Driver) -> None:
    (gpu,) = gpus(driver)
    assert (gpu.total_bytes, gpu.unified) == (0, True)


@linux_only
@pytest.mark.parametrize("refused", ["init", "count", "handle"])
def test_a_driver_that_refuses_means_no_gpu(refused: str) -> None:
    driver = Driver(refuses=(refused,))
    assert gpus(driver) == gpu_gauges(driver) == ()
    assert driver.open == 0


@linux_only
def test_figures_that_the_driver_does_not_say_are_none() -> None:
    (gauges,) = gpu_gauges(Driver(refuses=("memory", "load", "temperature", "power")))
    assert gauges.model_dump() == dict.fromkeys(("free_bytes", "utilization", "temperature_c", "power_w"))


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("-1", ()),
        ("1", (1,)),
        ("2, 0", (2, 0)),
        ("0,7,1", (0,)),
        ("0,x,1", (0,)),
        ("1,1", ()),
        ("GPU-b1,GPU-a0", (2, 0)),
        ("GPU-b", ()),
        ("0,MIG-b1", (0, 1, 2)),
    ],
)
def test_gpus_that_cuda_hides_do_not_count(wanted: str | None, left: tuple[int, ...]) -> None:
    assert visible(wanted, ["GPU-a0", "GPU-b0", "GPU-b1"]) == left


@linux_only
@pytest.mark.parametrize(("wanted", "count"), [("0", 1), ("GPU-00", 1), ("", 0), ("1", 0)])
def test_facts_and_gauges_are_of_the_gpus_that_cuda_shows(
    wanted: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, wanted)
    driver = Driver()
    assert len(gpus(driver)) == len(gpu_gauges(driver)) == count
    assert driver_answers(driver)
    assert driver.open == 0


def test_the_real_library_is_no_error_without_a_driver() -> None:
    assert len(gpus()) == len(gpu_gauges())
