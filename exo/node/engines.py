"""Which engines can run here, found without importing them: an import of MLX takes the GPU and seconds."""

import importlib.util
from typing import Literal

from exo.domain.shard import EngineName

EngineChoice = Literal["auto", "mlx", "scripted"]

MLX_MODULES = ("mlx", "mlx_lm")


def available_engines(choice: EngineChoice) -> tuple[EngineName, ...]:
    """The engines to offer, the preferred one first. `scripted` runs only where it is chosen: it answers nonsense.

    Empty where the chosen engine is not installed.
    """
    if choice == "scripted":
        return ("scripted",)
    return ("mlx",) if all(importlib.util.find_spec(name) for name in MLX_MODULES) else ()
