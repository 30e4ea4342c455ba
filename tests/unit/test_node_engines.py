"""Which engines a machine is found to have, by the packages that are installed and the GPUs that are there."""

import re
import socket
from collections.abc import Iterator, Mapping

import pytest

from exo.domain.node import EngineFacts
from exo.domain.ray import RayCluster
from exo.domain.shard import EngineName
from exo.node.engines import Host, engine_facts, gpu_problem, offered
from exo.node.ray import FAILURES, RayHead

MLX = {"mlx": "0.32.4", "mlx-lm": "0.32.2"}
MLX_CPU = MLX | {"mlx-cpu": "0.32.4"}
CUDA = {"vllm": "0.32.0", "torch": "2.13.0"}
VLLM_CPU = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}
LINUX, MAC = Host("linux"), Host("darwin", has_apple_gpu=True)
WITH_GPU, NO_DRIVER = Host("linux", "works"), Host("linux", "no driver")


def found(host: Host, installed: Mapping[str, str], chosen: tuple[EngineName, ...] = ()) -> dict[str, EngineFacts]:
    return {one.name: one for one in engine_facts(host, chosen, installed.get)}


def order(host: Host, installed: Mapping[str, str], chosen: tuple[EngineName, ...] = ()) -> tuple[EngineName, ...]:
    return offered(engine_facts(host, chosen, installed.get), chosen)


@pytest.mark.parametrize(
    ("host", "installed", "engine", "device"),
    [
        (LINUX, MLX_CPU, "mlx", "cpu"),
        (MAC, MLX, "mlx", "gpu"),
        (WITH_GPU, MLX_CPU, "mlx", "cpu"),
        (WITH_GPU, MLX | {"mlx-cuda-13": "0.32.4"}, "mlx", "gpu"),
        (LINUX, VLLM_CPU, "vllm", "cpu"),
        (LINUX, {"vllm": "0.32.0+cpu", "torch": "2.13.0"}, "vllm", "cpu"),
        (WITH_GPU, CUDA, "vllm", "gpu"),
    ],
)
def test_an_engine_that_is_installed_runs(
    host: Host, installed: Mapping[str, str], engine: EngineName, device: str
) -> None:
    one = found(host, installed)[engine]
    assert (one.runs, one.device, one.problem) == (True, device, "")
    assert {package.name: package.version for package in one.packages} == installed


@pytest.mark.parametrize(
    ("host", "installed", "engine", "why"),
    [
        (LINUX, {}, "mlx", r"not installed.*'\.\[mlx\]'"),
        (LINUX, MLX, "mlx", "not whole"),
        (LINUX, {"mlx": "1", "mlx-cpu": "1"}, "mlx", "not whole"),
        (LINUX, {}, "vllm", "not installed: `make run ENGINE=vllm`"),
        (LINUX, {"vllm-cpu": "0.32.0"}, "vllm", "not installed"),
        (WITH_GPU, {}, "vllm", r"not installed.*'\.\[cuda\]'"),
        (LINUX, CUDA, "vllm", "build for NVIDIA GPUs, and there is none"),
        (NO_DRIVER, CUDA, "vllm", "its driver does not answer"),
        (MAC, {}, "vllm", "Linux alone"),
        (MAC, VLLM_CPU, "vllm", "Linux alone"),
    ],
)
def test_an_engine_that_cannot_run_says_why(
    host: Host, installed: Mapping[str, str], engine: EngineName, why: str
) -> None:
    one = found(host, installed)[engine]
    assert not one.runs
    assert re.search(why, one.problem)


def test_a_build_for_cpus_runs_beside_a_gpu_and_says_what_is_missed() -> None:
    one = found(WITH_GPU, VLLM_CPU)["vllm"]
    assert (one.runs, one.device) == (True, "cpu")
    assert "vLLM's build for CPUs, and the machine has an NVIDIA GPU" in one.problem


@pytest.mark.parametrize(
    ("host", "installed", "expected"),
    [
        (LINUX, MLX_CPU | VLLM_CPU, ("mlx", "vllm")),
        (WITH_GPU, MLX_CPU | CUDA, ("vllm", "mlx")),
        (WITH_GPU, MLX_CPU | VLLM_CPU, ("mlx", "vllm")),
        (MAC, MLX, ("mlx",)),
        (LINUX, {}, ()),
    ],
)
def test_a_gpu_decides_which_engine_is_preferred(
    host: Host, installed: Mapping[str, str], expected: tuple[EngineName, ...]
) -> None:
    assert order(host, installed) == expected


def test_what_the_user_names_is_offered_in_this_order_and_nothing_else() -> None:
    both = MLX_CPU | VLLM_CPU
    assert order(LINUX, both, ("vllm", "mlx")) == ("vllm", "mlx")
    assert order(LINUX, both, ("vllm",)) == ("vllm",)
    assert found(LINUX, both, ("vllm",))["mlx"].problem == "EXO_ENGINE=vllm leaves it out"
    assert order(LINUX, MLX_CPU, ("vllm", "mlx")) == ("mlx",)
    assert order(LINUX, both, ("scripted",)) == ("scripted",)


@pytest.mark.parametrize(
    ("host", "installed", "problem"),
    [
        (WITH_GPU, MLX_CPU, "vllm: not installed"),
        (WITH_GPU, MLX_CPU | VLLM_CPU, "vllm: this is vLLM's build for CPUs"),
        (NO_DRIVER, MLX_CPU, "vllm: this machine has an NVIDIA GPU, and its driver does not answer"),
        (MAC, {}, "mlx: not installed"),
    ],
)
def test_a_gpu_that_no_engine_uses_is_told_with_the_reason(
    host: Host, installed: Mapping[str, str], problem: str
) -> None:
    assert gpu_problem(host, engine_facts(host, (), installed.get)).startswith(problem)


@pytest.mark.parametrize(("host", "installed"), [(LINUX, MLX_CPU), (WITH_GPU, CUDA), (MAC, MLX)])
def test_without_a_gpu_or_with_an_engine_on_it_there_is_nothing_to_tell(
    host: Host, installed: Mapping[str, str]
) -> None:
    assert gpu_problem(host, engine_facts(host, (), installed.get)) == ""


RAY = {"ray": "2.50.0"}


@pytest.fixture
def head() -> Iterator[RayCluster]:
    """Something that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield RayCluster(address=f"127.0.0.1:{server.getsockname()[1]}", nodes=2)


def test_vllm_divides_models_over_a_ray_cluster_that_answers(head: RayCluster) -> None:
    one = engine_facts(WITH_GPU, (), (CUDA | RAY).get, RayHead(head))[1]
    assert (one.runs, one.machines, one.problem) == (True, 2, "")


@pytest.mark.parametrize(
    ("host", "installed", "why"),
    [
        (WITH_GPU, CUDA, "needs Ray beside vLLM.*`pip install ray`"),
        (LINUX, VLLM_CPU | RAY, "EXO_RAY_NODES=2: over several machines vLLM computes on GPUs alone"),
        (LINUX, {}, "not installed"),
    ],
)
def test_vllm_is_not_offered_where_it_cannot_use_ray(
    head: RayCluster, host: Host, installed: Mapping[str, str], why: str
) -> None:
    one = engine_facts(host, (), installed.get, RayHead(head))[1]
    assert not one.runs
    assert re.search(why, one.problem)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1", "", "127.0.0.1:99999", "127.0.0.1:port", "[::1"])
def test_a_ray_cluster_that_does_not_answer_is_told_with_how_to_start_one(address: str) -> None:
    one = engine_facts(WITH_GPU, (), (CUDA | RAY).get, RayHead(RayCluster(address=address, nodes=2)))[1]
    assert not one.runs
    assert f"answers at {address or 'EXO_RAY_ADDRESS, which is not set'}: `ray start --head`" in one.problem


def test_a_ray_head_that_misses_a_look_changes_nothing_and_one_that_misses_several_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = RayHead(RayCluster(address=f"127.0.0.1:{server.getsockname()[1]}", nodes=2))
        assert head.problem(RAY.get) == ""
    assert [bool(head.problem(RAY.get)) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]
