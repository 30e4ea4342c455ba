"""Where the engine, which takes requests, meets vLLM's connector, which sees blocks.

Engine, scheduler and model run in one thread; what is here is theirs together.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from exo.domain.ids import TaskId
from exo.errors import Retryable
from exo.runner.engines.base import PrefillOutput
from exo.runner.engines.vllm.kv.fit import StateShape, fitting
from exo.runner.engines.vllm.kv.numbers import tensor_of
from exo.runner.kv.form import AttentionState, DType, PromptState, Sink

logger = logging.getLogger(__name__)

TASK = "exo_task"
"""The entry of a request's `kv_transfer_params` that names its task: vLLM has ids of its own."""

ELSEWHERE = "vLLM computes this model in other processes, one for each GPU, and their states are not handed out"
"""Why nothing is exchanged unless the connector meets the caches in this process."""

CLOSED = "vLLM has closed a model of this process, and its connector with it"


@dataclass(slots=True, eq=False)
class Outgoing:
    """The state of a prompt, handed out while it is computed."""

    sink: Sink
    tokens: int
    """Of the prompt."""
    planned: int = 0
    """So many of them are computed, or will be by the steps that are scheduled."""
    cached: int = 0
    """So many of them the prefix cache held."""
    sent: int = 0
    """So many of them are handed out, of all layers."""
    told: int = 0
    """So many of them were told to be."""


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """A state from elsewhere that fits the model and the prompt."""

    tokens: int
    layers: Sequence[torch.Tensor]
    """Keys and values of each, [2, tokens, heads, size of a head], in the host's memory."""


@dataclass(slots=True, eq=False)
class Exchange:
    """What is to be handed out and taken in, by task."""

    outgoing: dict[TaskId, Outgoing] = field(default_factory=dict[TaskId, Outgoing])
    incoming: dict[TaskId, Incoming] = field(default_factory=dict[TaskId, Incoming])
    """Until it is in vLLM's blocks."""
    shape: StateShape | None = None
    """Of the loaded model's states; None where they cannot be exchanged."""
    refusal: str = ELSEWHERE
    """Why they cannot; empty where they can."""
    held: Callable[[Sequence[int]], int] = field(default=lambda prompt: 0)
    """How many of a prompt's first tokens vLLM's prefix cache holds, as far as this process can see."""

    def hand_out(self, task_id: TaskId, tokens: int, sink: Sink) -> None:
        """A prompt of so many tokens is going to be computed."""
        self.outgoing[task_id] = Outgoing(sink, tokens)

    def take_in(self, task_id: TaskId, state: PromptState, prompt_tokens: int) -> None:
        """A prompt of so many tokens has a state. One that does not fit is left, with a line in the log."""
        try:
            if self.shape is None:
                raise Retryable(self.refusal)
            layers = fitting(state, self.shape, prompt_tokens)
            self.incoming[task_id] = Incoming(state.tokens, [_together(one, self.shape.dtype) for one in layers])
        except (Retryable, RuntimeError, MemoryError) as error:  # torch raises the latter two where memory is short
            logger.warning("the whole prompt of task %s is computed: %s", task_id, error)

    def arguments(self, task_id: TaskId) -> dict[str, object]:
        """What a request says to vLLM, for the connector to find its task; nothing where it exchanges nothing."""
        exchanged = task_id in self.outgoing or task_id in self.incoming
        return {"kv_transfer_params": {TASK: task_id}} if exchanged else {}

    def progress(self) -> list[PrefillOutput]:
        """How far prompts are that are handed out, where it is farther than when this was last asked."""
        moved = [(task_id, one) for task_id, one in self.outgoing.items() if one.sent > one.told or not one.tokens]
        return [_progress(task_id, one) for task_id, one in moved]

    def forget(self, task_id: TaskId) -> None:
        """The request is over, or never began."""
        self.outgoing.pop(task_id, None)
        self.incoming.pop(task_id, None)


def _together(layer: AttentionState, dtype: DType) -> torch.Tensor:
    return torch.stack([tensor_of(layer.keys, dtype), tensor_of(layer.values, dtype)])


def _progress(task_id: TaskId, outgoing: Outgoing) -> PrefillOutput:
    outgoing.told = outgoing.sent
    is_last = outgoing.sent == outgoing.tokens
    return PrefillOutput(task_id, outgoing.sent, outgoing.tokens, outgoing.cached, is_last)
