"""Which engines can run here, found without importing them: an import of MLX takes the GPU and seconds."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Literal

from exo.domain.shard import EngineName

EngineChoice = Literal["auto", "mlx", "vllm", "scripted"]

MODULES: Mapping[EngineName, Sequence[str]] = {"mlx": ("mlx", "mlx_lm"), "vllm": ("vllm", "torch")}


def available_engines(choice: EngineChoice, *, has_cuda: bool = False) -> tuple[EngineName, ...]:
    """The engines to offer, the preferred one first. `scripted` runs only where it is chosen: it answers nonsense.

    Empty where the chosen engine is not installed.
    """
    if choice == "scripted":
        return ("scripted",)
    preferred: tuple[EngineName, ...] = ("vllm", "mlx") if has_cuda else ("mlx", "vllm")
    return tuple(name for name in preferred if choice in ("auto", name) and _is_installed(name))


def _is_installed(name: EngineName) -> bool:
    return all(importlib.util.find_spec(module) for module in MODULES[name])
