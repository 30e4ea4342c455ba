"""What a computer is found to be, by what its firmware says. The files are made here, after what such machines have."""

import json
from pathlib import Path

import pytest

from exo.domain.node import Machine
from exo.node.machine import MacProfile, kind_of, linux_machine, machine, parse_system_profiler, product
from exo.node.pci import has_nvidia_gpu


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_dgx_spark_stands_on_a_desk_though_its_firmware_says_server(tmp_path: Path) -> None:
    dmi = written(tmp_path / "dmi", sys_vendor="NVIDIA\n", product_name="NVIDIA_DGX_Spark\n", chassis_type="17\n")
    assert linux_machine(dmi, tmp_path, tmp_path / "none") == Machine(model="NVIDIA DGX Spark", kind="desktop")


@pytest.mark.parametrize(
    ("maker", "name", "model"),
    [
        ("ASUSTeK COMPUTER INC.", "GX10", "ASUSTeK COMPUTER INC. GX10"),
        ("NVIDIA", "DGXA100 920", "NVIDIA DGXA100 920"),
        ("Dell Inc.", "Dell Pro Max with GB10", "Dell Pro Max with GB10"),
        ("ASUS", "System Product Name", ""),
        ("To Be Filled By O.E.M.", "X570", "X570"),
        ("", "X570", "X570"),
        ("_", "X570", "X570"),
        ("LENOVO", "_", ""),
        ("LENOVO", "", ""),
    ],
)
def test_a_machine_is_called_what_its_maker_calls_it(maker: str, name: str, model: str) -> None:
    assert product(maker, name) == model


@pytest.mark.parametrize("chassis", ["8", "9", "10", "14", "31", "32"])
def test_a_chassis_that_folds_is_a_laptops(chassis: str) -> None:
    assert kind_of("", chassis, has_battery=False) == "laptop"


@pytest.mark.parametrize(
    ("model", "chassis", "has_battery", "kind"),
    [
        ("", "3", False, "desktop"),
        ("", "23", False, "server"),
        ("NVIDIA DGXA100", "23", False, "server"),
        ("ASUS GX10", "17", False, "desktop"),
        ("", "3", True, "laptop"),
        ("", "1", False, "unknown"),
        ("", "", False, "unknown"),
        ("", "", True, "laptop"),
        ("", "nine", False, "unknown"),
    ],
)
def test_the_kind_follows_from_chassis_and_battery(model: str, chassis: str, has_battery: bool, kind: str) -> None:
    assert kind_of(model, chassis, has_battery) == kind


def test_a_battery_of_a_mouse_makes_no_laptop(tmp_path: Path) -> None:
    supplies = tmp_path / "supplies"
    written(supplies / "mouse", type="Battery\n", scope="Device\n")
    written(supplies / "mains", type="Mains\n")
    assert linux_machine(tmp_path, supplies, tmp_path / "none").kind == "unknown"
    written(supplies / "BAT0", type="Battery\n")
    assert linux_machine(tmp_path, supplies, tmp_path / "none").kind == "laptop"


def test_a_board_without_dmi_is_named_by_its_device_tree(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("Raspberry Pi 5 Model B Rev 1.0\0")
    assert linux_machine(tmp_path / "no", tmp_path / "no", tmp_path / "model") == Machine(
        model="Raspberry Pi 5 Model B Rev 1.0", kind="unknown"
    )


def test_a_container_that_says_nothing_is_no_error(tmp_path: Path) -> None:
    assert linux_machine(tmp_path / "a", tmp_path / "b", tmp_path / "c") == Machine()


@pytest.mark.parametrize(("name", "kind"), [("MacBook Pro", "laptop"), ("Mac Studio", "desktop")])
def test_a_mac_is_named_by_its_profiler(name: str, kind: str) -> None:
    said = {"SPHardwareDataType": [{"machine_name": name, "machine_model": "Mac15,14", "chip_type": "Apple M3"}]}
    assert parse_system_profiler(json.dumps(said)) == Machine.model_validate({"model": name, "kind": kind})


@pytest.mark.parametrize("said", ["", "{}", "[]", "null", '{"SPHardwareDataType": []}', '{"SPHardwareDataType": [1]}'])
def test_a_profiler_that_says_something_else_is_no_error(said: str) -> None:
    assert parse_system_profiler(said) == Machine()


def test_a_profiler_that_took_too_long_is_asked_again_and_an_answer_is_kept() -> None:
    answers = iter([None, '{"SPHardwareDataType": [{"machine_name": "Mac Studio"}]}'])
    profile = MacProfile(lambda: next(answers))
    studio = Machine(model="Mac Studio", kind="desktop")
    assert [profile.machine() for _ in range(3)] == [Machine(), studio, studio]


def test_this_machine_is_the_same_at_each_look() -> None:
    assert machine() == machine()


def test_a_gpu_is_seen_on_the_bus_without_its_driver(tmp_path: Path) -> None:
    written(tmp_path / "a", vendor="0x10de\n", **{"class": "0x020700\n"})
    assert not has_nvidia_gpu(tmp_path)
    written(tmp_path / "b", vendor="0x10de\n", **{"class": "0x030200\n"})
    assert has_nvidia_gpu(tmp_path)
    assert not has_nvidia_gpu(tmp_path / "none")
