"""A window of the last tokens in place of all, and the other way, where that is exact."""

from exo.errors import Rejected
from exo.runner.kv.form import AttentionState, Numbers, WindowState


def as_window(state: AttentionState | WindowState, tokens: int, size: int) -> WindowState:
    """The last `size` of a layer's `tokens`. Raises Rejected where not all of them are there."""
    start = max(0, tokens - size)
    first = state.start if isinstance(state, WindowState) else 0
    if first > start:
        raise Rejected(f"it is there from token {first} on, and a window of {size} begins with token {start}")
    keys, values = (Numbers(array.dtype, array.raw[start - first :]) for array in (state.keys, state.values))
    return WindowState(keys, values, start, size)


def as_attention(state: AttentionState | WindowState) -> AttentionState:
    """All tokens of a layer. Raises Rejected where a window has left some behind."""
    if isinstance(state, WindowState) and state.start:
        raise Rejected(f"it is there from token {state.start} on, and the model wants all from token 0")
    return AttentionState(state.keys, state.values)
