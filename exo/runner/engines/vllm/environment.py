"""What vLLM and torch read from the environment of their process, once, while they are imported."""

import logging
import os

from exo.domain.ray import RayCluster

SETTINGS = {
    "HF_HUB_OFFLINE": "1",  # models come from this node's store
    "VLLM_CONFIGURE_LOGGING": "0",  # it logs as this process does
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # runners share the cores of a machine
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's loop is the runner's
    "VLLM_NO_USAGE_STATS": "1",
    # Version 2, which vLLM takes on GPUs, refuses logits processors of others (`repetition.py`), holds seeds in 63
    # bits, and warms up in blocks that have no memory yet (`cache/`).
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}
OF_OUR_ENGINE = {"VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_USE_V2_MODEL_RUNNER"}
"""Those that vLLM's own server does without."""


def prepare_environment(threads: int, ray: RayCluster | None = None) -> None:
    """Before vLLM is imported. `threads`: of processes that it starts; what this one computes with is set in
    `step_threads.py`, since torch may be here already. What the user has set stays."""
    for name, value in {**SETTINGS, "OMP_NUM_THREADS": str(threads)}.items():
        os.environ.setdefault(name, value)
    if ray is not None:
        os.environ["RAY_ADDRESS"] = ray.address  # without it vLLM would have Ray start a cluster of this machine
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger("vllm").setLevel(logging.ERROR)  # its warnings are of what is set here and by the engine
