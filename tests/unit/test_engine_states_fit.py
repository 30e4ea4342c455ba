"""Whether a state from elsewhere is one of a model that keeps plain attention."""

import numpy as np
import pytest

from exo.errors import Retryable
from exo.runner.engines.vllm.kv.fit import StateShape, fitting
from exo.runner.kv.form import ArraysState, AttentionState, LayerState, Numbers, PromptState, WindowState

SHAPE = StateShape(layers=2, heads=3, size=4, dtype="float32")


def numbers(*shape: int) -> Numbers:
    return Numbers("float32", np.zeros(shape, "<f4"))


def attention(tokens: int = 5, heads: int = 3, size: int = 4) -> AttentionState:
    return AttentionState(numbers(tokens, heads, size), numbers(tokens, heads, size))


def window(start: int) -> WindowState:
    return WindowState(numbers(5 - start, 3, 4), numbers(5 - start, 3, 4), start, 8)


def test_a_state_of_the_model_fits_and_so_does_a_window_that_holds_all_tokens() -> None:
    whole = window(0)
    first, second = fitting(PromptState(5, (attention(), whole)), SHAPE, prompt_tokens=6)
    assert first.tokens == 5
    assert second.keys is whole.keys


@pytest.mark.parametrize(
    ("layers", "prompt_tokens", "both"),
    [
        ((attention(), attention()), 5, ("5 tokens", "has 5")),
        ((attention(),), 6, ("1 layers", "2 layers")),
        ((attention(), attention(heads=2)), 6, ("layer 1", "[5, 2, 4]", "[5, 3, 4]")),
        ((attention(size=8), attention()), 6, ("layer 0", "[5, 3, 8]", "[5, 3, 4]")),
        ((attention(tokens=4), attention()), 6, ("layer 0", "[4, 3, 4]", "[5, 3, 4]")),
        ((attention(), window(1)), 6, ("layer 1", "[4, 3, 4]", "[5, 3, 4]")),
        ((attention(), AttentionState(numbers(5, 3, 4), numbers(5, 3, 2))), 6, ("values", "[5, 3, 2]")),
        ((attention(), ArraysState((None,))), 6, ("layer 1", "state space", "3 heads of 4 numbers")),
    ],
)
def test_another_does_not_and_the_reason_has_both_sides(
    layers: tuple[LayerState, ...], prompt_tokens: int, both: tuple[str, ...]
) -> None:
    with pytest.raises(Retryable) as refused:
        fitting(PromptState(5, layers), SHAPE, prompt_tokens)
    assert [part for part in both if part not in str(refused.value)] == []
