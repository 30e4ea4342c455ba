"""Engines, made by name, so that a library is imported only in the process that runs it."""

from pathlib import Path
from typing import assert_never

from exo.domain.ray import RayCluster
from exo.domain.shard import EngineName
from exo.runner.engines.base import Engine
from exo.runner.engines.threads import ThreadShare


def make_engine(
    name: EngineName, cache: Path, threads: ThreadShare | None = None, ray: RayCluster | None = None
) -> Engine:
    """An engine that is not loaded yet, computing with one thread unless `threads` allows more.

    `cache` is a folder for files that can be made again. `ray`: what vLLM divides a model over.
    """
    match name:
        case "mlx":
            from exo.runner.engines.mlx.engine import MlxEngine  # noqa: PLC0415  (imported only where it runs)

            return MlxEngine(cache, threads or ThreadShare())
        case "scripted":
            from exo.runner.engines.scripted import ScriptedEngine  # noqa: PLC0415  (tests only)

            return ScriptedEngine()
        case "vllm":
            from exo.runner.engines.vllm.engine import VllmEngine  # noqa: PLC0415  (imported only where it runs)

            return VllmEngine(threads or ThreadShare(), ray=ray)
        case _:
            assert_never(name)
