"""What the scripted engine "keeps" of a prompt: in each layer its tokens as keys, and their places as values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exo.domain.ids import TaskId
from exo.errors import Retryable
from exo.runner.engines.base import PrefillOutput
from exo.runner.engines.script import Script
from exo.runner.kv.form import AttentionState, Numbers, Piece, PromptState, Sink


@dataclass(slots=True)
class StateRun:
    """A prompt whose state is wanted alone, in flight. It is handed out a layer at a time, at the script's pace."""

    task_id: TaskId
    prompt: Sequence[int]
    script: Script
    layers: int
    sink: Sink
    due: float
    """When the next layer is handed out, on the clock `time.monotonic`."""
    given: int = 0
    """Layers that were handed out."""

    def next_layer(self) -> PrefillOutput:
        """Hands out the next layer."""
        total = len(self.prompt)
        self.sink(Piece(self.given, _layer(self.prompt[:-1])))
        self.given += 1
        is_last = self.given == self.layers
        return PrefillOutput(self.task_id, total if is_last else 0, total, is_last=is_last)


def check_state(state: PromptState, prompt: Sequence[int], layers: int) -> None:
    """Raises Retryable unless it is what another scripted engine handed out of a beginning of this prompt."""
    if len(state.layers) != layers:
        raise Retryable(f"the state has {len(state.layers)} layers, and the model {layers}")
    wanted = _layer(prompt[: state.tokens])
    for number, layer in enumerate(state.layers):
        if not isinstance(layer, AttentionState) or not _equal(layer, wanted):
            raise Retryable(f"layer {number} of the state is of another prompt")


def _layer(tokens: Sequence[int]) -> AttentionState:
    places = range(len(tokens))
    return AttentionState(*(Numbers("float32", np.array(of, np.float32).reshape(-1, 1, 1)) for of in (tokens, places)))


def _equal(one: AttentionState, other: AttentionState) -> bool:
    return np.array_equal(one.keys.raw, other.keys.raw) and np.array_equal(one.values.raw, other.values.raw)
