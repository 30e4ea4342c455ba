"""How many threads OpenBLAS multiplies with, from moment to moment.

OpenBLAS divides each product into equal parts and waits for all of them. With a core for every thread that is a gain:
on two quiet cores (135 M parameters, float32) two threads decode 1.3 to 1.4 times as fast as one, and prefill 1.2 to
1.35 times. But where another process wants one of the cores, each product waits until the scheduler lets the last part
run: then two threads are 2 to 25 times slower than one (medians of 0.1 in decoding and prefill), whatever
`OPENBLAS_THREAD_TIMEOUT` says. So there is one thread unless the cores are free, and it is looked at often.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from exo.node.cores import OthersUse, usable_cores

logger = logging.getLogger(__name__)

LOOK_PAUSE = 0.1
"""Seconds between two looks. A thread too many costs most of a step, so it must be noticed within one or two."""
SLACK = 0.25
"""Of a core, that others may use beside us: more than a node at work takes for messages and HTTP, and as much as was
measured to leave no gain of the second of two threads."""
CALM = 2.0
"""Seconds that cores must be free before they are used."""
CALM_MOST = 64.0


@dataclass(slots=True)
class ThreadShare:
    """The most threads of this runner: its part of the machine's cores, which changes as runners come and go."""

    most: int = 1


@dataclass(slots=True)
class ThreadPolicy:
    """Decides how many threads, one look after the other. Fewer at once; more only after a calm time, which doubles
    with each disturbance, so that a load that comes and goes costs little, and is forgotten after a long one."""

    threads: int = 1
    _calm: float = CALM
    _free_since: float | None = None
    _changed_at: float = 0.0

    def decide(self, now: float, most: int, free: float) -> int:
        """Threads from now on, at most `most`, when `free` cores are not used by others."""
        room = max(1, min(most, int(free + SLACK)))
        if room < self.threads:
            self._calm = min(2 * self._calm, CALM_MOST)
            self._change(now, room)
        elif room == self.threads:
            self._free_since = None
            if now - self._changed_at > CALM_MOST:
                self._calm = CALM
        elif self._free_since is None:
            self._free_since = now
        elif now - self._free_since >= self._calm:
            self._change(now, room)
        return self.threads

    def _change(self, now: float, threads: int) -> None:
        self.threads = threads
        self._changed_at = now
        self._free_since = None


class ThreadGovernor:
    """Sets the threads from a thread of its own, for as long as an engine is loaded."""

    def __init__(self, share: ThreadShare, set_threads: Callable[[int], None]) -> None:
        self._share = share
        self._set_threads = set_threads
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="blas threads", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and waits for that."""
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        policy, others = ThreadPolicy(), OthersUse()
        while not self._stopping.wait(LOOK_PAUSE):
            before = policy.threads
            threads = policy.decide(time.monotonic(), self._share.most, usable_cores() - others.measure())
            if threads != before:
                self._set_threads(threads)
                logger.debug("products of matrices take %d threads now", threads)
