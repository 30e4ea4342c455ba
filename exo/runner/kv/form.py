"""What a model keeps of a prompt's tokens, in a form that no engine owns.

A state is a list of layers, in the order of the model. A layer that keeps several things (attention beside a state
space) has them one after the other; one that keeps nothing is not there. No axis is for a batch: a state is of one
prompt. Numbers are kept bit by bit as the engine had them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

DType = Literal["float32", "float16", "bfloat16"]
DTYPES: tuple[DType, ...] = get_args(DType)

RAW: dict[DType, np.dtype[np.generic]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
}
"""What numpy holds them as. It has no bfloat16: those are their 16 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """An array of floats."""

    dtype: DType
    raw: npt.NDArray[np.generic]
    """Of the type RAW[dtype]."""

    def __post_init__(self) -> None:
        if self.raw.dtype != RAW[self.dtype]:
            raise ValueError(f"an array of {self.raw.dtype} was given as one of {self.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.raw.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.raw.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class AttentionState:
    """Keys and values of tokens, each [tokens, kv_heads, head_dim]. Heads of the two may be of different widths."""

    keys: Numbers
    values: Numbers

    @property
    def tokens(self) -> int:
        """How many."""
        return self.keys.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class WindowState:
    """Keys and values, as those of attention, of the last tokens alone, the oldest first."""

    keys: Numbers
    values: Numbers
    start: int
    """The token in the prompt with which they begin."""
    size: int
    """How many tokens the layer keeps at most."""

    @property
    def tokens(self) -> int:
        """How many are kept."""
        return self.keys.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class ArraysState:
    """What a state space, or another recurrent layer, keeps of all tokens together."""

    arrays: tuple[Numbers | None, ...]
    """Of the shapes that the model gives them; None for one that it has not set."""


LayerState = AttentionState | WindowState | ArraysState


@dataclass(frozen=True, slots=True, eq=False)
class PromptState:
    """What all layers keep of a prompt's first tokens."""

    tokens: int
    """How many of them it covers."""
    layers: tuple[LayerState, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for layer in self.layers for array in arrays_of(layer) if array is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A part of a state: some tokens of a layer with attention, or all of a layer of another kind."""

    layer: int
    """Its number, from 0."""
    state: LayerState
    start: int = 0
    """Of attention: the token in the prompt with which the piece begins."""


Sink = Callable[[Piece], None]
"""Takes pieces from an engine, in its thread, and does not make it wait.

Those of one layer come in the order of tokens, without gaps. The arrays are the taker's: the engine does not write to
them again.
"""


def arrays_of(state: LayerState) -> tuple[Numbers | None, ...]:
    """The arrays of a layer."""
    return state.arrays if isinstance(state, ArraysState) else (state.keys, state.values)
