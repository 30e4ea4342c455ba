"""The scripted engine's vectors: the same for the same text, whatever it is beside."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exo.domain.embedding import Pooling
from exo.domain.ids import TaskId
from exo.runner.engines.base import EngineOutput, PrefillOutput, VectorOutput
from exo.runner.engines.script import Script
from exo.runner.engines.vectors import unit


@dataclass(slots=True)
class TextsRun:
    """One request for vectors in flight: a text after the other, each as soon as its script says."""

    task_id: TaskId
    texts: Sequence[Sequence[int]]
    """Tokens."""
    scripts: Sequence[Script]
    """What is said of each text."""
    pooling: Pooling
    width: int
    dimensions: int
    due: float = 0.0
    """When the next vector comes, on the clock `time.monotonic`."""
    given: int = 0
    """Vectors that came."""

    def wait_for_next(self) -> None:
        """Moves `due` on to the next vector, if there is one."""
        if self.given < len(self.texts):
            script = self.scripts[self.given]
            self.due += script.prefill + script.pace

    def next_vector(self) -> list[EngineOutput]:
        """How far it is, and the vector that is due."""
        index, self.given = self.given, self.given + 1
        vector = unit(_row(self.texts[index], self.pooling, self.width), self.dimensions)
        assert vector is not None  # no byte is 127.5
        lengths = [len(text) for text in self.texts]
        return [
            PrefillOutput(self.task_id, sum(lengths[: self.given]), sum(lengths)),
            VectorOutput(self.task_id, index, vector, is_last=self.given == len(self.texts)),
        ]


def _row(text: Sequence[int], pooling: Pooling, width: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Numbers that depend on all tokens, or on the last one alone."""
    pooled = text if pooling == "mean" else text[-1:]
    digest = hashlib.shake_256(np.array(pooled, dtype="<i8").tobytes()).digest(width)
    return np.frombuffer(digest, dtype=np.uint8).astype(np.float32) - np.float32(127.5)
