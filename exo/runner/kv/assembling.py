"""A state made of the pieces that came."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from exo.errors import Retryable
from exo.runner.kv.form import (
    ArraysState,
    AttentionState,
    LayerState,
    Numbers,
    Piece,
    PromptState,
    WindowState,
)


@dataclass(slots=True, eq=False)
class Assembly:
    """Pieces on their way to a state."""

    _layers: dict[int, list[LayerState]] = field(default_factory=dict[int, list[LayerState]])
    _tokens: dict[int, int] = field(default_factory=dict[int, int])
    """Of each layer, how many have come."""

    def take(self, piece: Piece) -> None:
        """Adds a piece. Raises Retryable where it does not go on where its layer's pieces ended."""
        states = self._layers.setdefault(piece.layer, [])
        _check_axes(piece.layer, piece.state)
        if isinstance(piece.state, AttentionState):
            self._check_continues(piece, piece.state, states)
            self._tokens[piece.layer] = piece.start + piece.state.tokens
        elif states:
            raise Retryable(f"layer {piece.layer} came twice")
        states.append(piece.state)

    def finished(self, tokens: int) -> PromptState:
        """The state of so many tokens, to be had once.

        Raises Retryable where a layer is missing, or has other tokens.
        """
        count = len(self._layers)
        if not count:
            raise Retryable("no layer came")
        missing = set(range(count)) - self._layers.keys()
        if missing:
            raise Retryable(f"layer {min(missing)} is missing of {max(self._layers) + 1}")
        for layer, states in self._layers.items():
            _check_length(layer, states, tokens, self._tokens.get(layer, 0))
        # The pieces of a layer go when it is joined: both of all layers together would be twice the state.
        return PromptState(tokens, tuple(_joined(self._layers.pop(layer)) for layer in range(count)))

    def _check_continues(self, piece: Piece, state: AttentionState, before: Sequence[LayerState]) -> None:
        _check_same_kind(piece.layer, state, before[0] if before else state)
        expected = self._tokens.get(piece.layer, 0)
        if piece.start != expected:
            raise Retryable(f"layer {piece.layer} goes on with token {piece.start}, and {expected} is its next one")


def assembled(pieces: Iterable[Piece], tokens: int) -> PromptState:
    """The state of so many tokens that these pieces make. Raises Retryable as `Assembly` does."""
    assembly = Assembly()
    for piece in pieces:
        assembly.take(piece)
    return assembly.finished(tokens)


def _check_axes(layer: int, state: LayerState) -> None:
    if isinstance(state, ArraysState):
        return
    for name, array in (("keys", state.keys), ("values", state.values)):
        if len(array.shape) != 3:
            raise Retryable(f"layer {layer} has {name} of {len(array.shape)} axes, not of 3")
    if state.values.shape[0] != state.tokens:
        raise Retryable(f"layer {layer} has keys of {state.tokens} tokens and values of {state.values.shape[0]}")


def _check_same_kind(layer: int, state: AttentionState, first: LayerState) -> None:
    if not isinstance(first, AttentionState):
        raise Retryable(f"layer {layer} came with attention and as another kind")
    here, there = (_kind(one.keys) + _kind(one.values) for one in (state, first))
    if here != there:
        raise Retryable(f"layer {layer} goes on with keys and values of {here}, and began with {there}")


def _kind(array: Numbers) -> tuple[object, ...]:
    return array.dtype, *array.shape[1:]


def _check_length(layer: int, states: Sequence[LayerState], tokens: int, came: int) -> None:
    state = states[0]
    match state:
        case AttentionState():
            have = came
        case WindowState():
            have = state.start + state.tokens
        case ArraysState():
            have = tokens
    if have != tokens:
        raise Retryable(f"layer {layer} has come up to token {have}, and the state is of {tokens}")


def _joined(states: Sequence[LayerState]) -> LayerState:
    pieces = [state for state in states if isinstance(state, AttentionState)]
    if len(pieces) < 2:
        return states[0]
    return AttentionState(_end_to_end([one.keys for one in pieces]), _end_to_end([one.values for one in pieces]))


def _end_to_end(arrays: Sequence[Numbers]) -> Numbers:
    return Numbers(arrays[0].dtype, np.concatenate([array.raw for array in arrays]))
