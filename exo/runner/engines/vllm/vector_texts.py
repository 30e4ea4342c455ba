"""Texts that are to become vectors, while vLLM computes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from exo.domain.embedding import Pooling
from exo.domain.ids import TaskId
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, VectorOutput
from exo.runner.engines.vectors import Row, unit


@dataclass(slots=True)
class TextsRun:
    """One request for vectors in flight."""

    task_id: TaskId
    lengths: Sequence[int]
    """Tokens of each text."""
    pooling: Pooling
    dimensions: int
    left: set[int] = field(init=False)
    """Indices of texts without a vector."""
    is_over: bool = False

    def __post_init__(self) -> None:
        self.left = set(range(len(self.lengths)))

    @property
    def request_ids(self) -> list[str]:
        """What vLLM is to call the texts that are left."""
        return [self.request_id(index) for index in self.left]

    def request_id(self, index: int) -> str:
        """What vLLM is to call a text."""
        return f"{self.task_id}/{index}"

    def take(self, index: int, states: torch.Tensor) -> list[EngineOutput]:
        """A text's vector, of what the last layer gave for each token: [tokens, width]."""
        self.left.remove(index)
        self.is_over = not self.left
        vector = unit(_pooled(states, self.pooling), self.dimensions)
        if vector is None:
            return self.failed(index, "what the model gives for it are no numbers that make a vector")
        total = sum(self.lengths)
        done = total - sum(self.lengths[one] for one in self.left)
        return [PrefillOutput(self.task_id, done, total), VectorOutput(self.task_id, index, vector, self.is_over)]

    def failed(self, index: int, reason: str) -> list[EngineOutput]:
        """The end of all, by the fault of one text."""
        self.is_over = True
        return [FailedOutput(self.task_id, "engine_error", f"input[{index}]: {reason}")]


def _pooled(states: torch.Tensor, pooling: Pooling) -> Row:
    numbers: Row = states.float().cpu().numpy()
    return numbers[-1] if pooling == "last" else numbers.mean(axis=0)
