"""Which of vLLM's classes are replaced by ours, by its own options, where this machine can do it."""

import sys
from dataclasses import dataclass

import torch

from exo.runner.engines.vllm.cache.cuda_driver import has_virtual_memory

PACKAGE = "exo.runner.engines.vllm.cache"


@dataclass(frozen=True, slots=True)
class Hooks:
    """By their names: workers of several GPUs are processes of their own. Without any, vLLM takes its own."""

    scheduler_cls: str | None = None
    worker_cls: str = "auto"
    async_scheduling: bool | None = None
    """Whether that scheduler is one for it. vLLM's own choice is the same."""

    @property
    def grow(self) -> bool:
        """Whether keys and values will."""
        return self.scheduler_cls is not None


ON_CPU = Hooks(f"{PACKAGE}.scheduler.GrowingScheduler", f"{PACKAGE}.worker.GrowingCpuWorker")
ON_GPU = Hooks(f"{PACKAGE}.scheduler.GrowingAsyncScheduler", f"{PACKAGE}.worker.GrowingGpuWorker", True)


def hooks() -> Hooks:
    """Ours on Linux' CPUs and on GPUs whose driver has virtual memory, none elsewhere."""
    if torch.cuda.is_available():
        return ON_GPU if has_virtual_memory() else Hooks()
    return ON_CPU if sys.platform == "linux" else Hooks()
