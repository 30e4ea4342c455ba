"""How many threads torch and vLLM's own C++ compute with on a CPU: as many as others leave, from step to step.

Both divide their work by OpenMP, whose number of threads belongs to the thread that asks: it is set in the engine's
own, between two steps. vLLM's worker puts a function that does nothing in the place of torch's, since it may have bound
threads to cores; here it binds none (`environment.py`). So torch's own is taken before the first worker begins.
"""

import torch

from exo.runner.engines.threads import ThreadGovernor, ThreadShare

_SET_THREADS = torch.set_num_threads
"""Taken once: after a model was loaded, a second one would find vLLM's in its place."""


class StepThreads:
    """Made in the engine's thread, before vLLM's engine. This module is imported before the first of them."""

    def __init__(self, share: ThreadShare) -> None:
        """It begins with one."""
        self._wanted = self._now = 1
        _SET_THREADS(1)
        self._governor = ThreadGovernor(share, self._want)

    def before_step(self) -> None:
        """Takes as many as are free by now."""
        if self._wanted != self._now:
            self._now = self._wanted
            _SET_THREADS(self._now)

    def close(self) -> None:
        """No longer looks."""
        self._governor.close()

    def _want(self, threads: int) -> None:
        self._wanted = threads
