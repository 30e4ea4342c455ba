"""Whether a state from elsewhere is one of the loaded model."""

from dataclasses import dataclass

from exo.errors import Retryable
from exo.runner.kv.form import ArraysState, AttentionState, DType, LayerState, PromptState


@dataclass(frozen=True, slots=True)
class StateShape:
    """Of the states that a model makes, and takes."""

    layers: int
    heads: int
    size: int
    """Numbers of a head's key, and of its value."""
    dtype: DType

    def __str__(self) -> str:
        return f"{self.layers} layers of {self.heads} heads of {self.size} numbers in {self.dtype}"


def fitting(state: PromptState, shape: StateShape, prompt_tokens: int) -> tuple[AttentionState, ...]:
    """The layers of a state, if it is of this shape and of a beginning of the prompt.

    A window that still holds all tokens is as good as attention. Of which type the numbers are is not looked at. Raises
    Retryable, with both sides, where it does not fit.
    """
    if not 0 < state.tokens < prompt_tokens:
        raise Retryable(f"the state is of {state.tokens} tokens, and the prompt has {prompt_tokens}")
    if len(state.layers) != shape.layers:
        raise Retryable(f"the state has {len(state.layers)} layers, and this model keeps {shape}")
    return tuple(_attention(index, layer, state.tokens, shape) for index, layer in enumerate(state.layers))


def _attention(index: int, layer: LayerState, tokens: int, shape: StateShape) -> AttentionState:
    if isinstance(layer, ArraysState):
        raise Retryable(f"layer {index} of the state is a state space, and this model keeps {shape}")
    wanted = (tokens, shape.heads, shape.size)
    for what, numbers in (("keys", layer.keys), ("values", layer.values)):
        if numbers.shape != wanted:
            raise Retryable(
                f"layer {index} of the state has {what} of {list(numbers.shape)}, and this model keeps {list(wanted)}"
            )
    return AttentionState(layer.keys, layer.values)
