"""What passes between the layers of a model, learned by running it once without computing anything.

MLX only notes operations until somebody evaluates: a model whose weights were not read runs in milliseconds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
from mlx import nn

from exo.errors import Fatal
from exo.runner.engines.mlx.layers import new_layers
from exo.runner.engines.mlx.sharding.stack import Stack, StandIn

BATCH, LENGTH = 1, 2
"""Of the tokens that are traced. More than one token, since a single one takes shortcuts."""


@dataclass(frozen=True, slots=True)
class Carried:
    """An array of a layer's output with one row a token: it goes on to the next rank."""

    row: tuple[int, ...]
    """Its shape after the batch and the tokens."""
    dtype: mx.Dtype

    @property
    def width(self) -> int:
        """Numbers a token."""
        return math.prod(self.row)


@dataclass(frozen=True, slots=True)
class Form:
    """What a layer returns: one value, or a tuple of them. None is what stays on its rank."""

    parts: tuple[Carried | None, ...]
    is_tuple: bool

    @property
    def carried(self) -> list[Carried]:
        """Its arrays that go on to the next rank."""
        return [part for part in self.parts if part is not None]

    def take(self, output: object) -> list[mx.array]:
        """The arrays of an output that go on."""
        values = _values(output)
        return [cast(mx.array, value) for value, part in zip(values, self.parts, strict=True) if part is not None]

    def make(self, arrays: Iterable[mx.array]) -> object:
        """An output of these arrays, and None for all else."""
        source = iter(arrays)
        values = tuple(None if part is None else next(source) for part in self.parts)
        return values if self.is_tuple else values[0]


@dataclass(slots=True)
class Trace:
    """The layers' outputs by index, and what each layer uses of those before it beside what is carried."""

    forms: list[Form] = field(default_factory=list[Form])
    borrowed: list[set[int]] = field(default_factory=list[set[int]])
    left: dict[int, int] = field(default_factory=dict[int, int])
    """Which layer returned a value that stays on its rank, by the value's identity."""
    kept: list[object] = field(default_factory=list[object])
    """Keeps what was returned, since the identity of what is gone may be given out again."""

    def note(self, index: int, arguments: Iterable[object], output: object) -> None:
        """One layer has run. Raises Fatal where layers do not run once each, in order."""
        if index != len(self.forms):
            raise Fatal(f"the model runs layer {index} as number {len(self.forms)}: its layers are no simple stack")
        self.borrowed.append({self.left[id(value)] for value in arguments if id(value) in self.left})
        form = _form(output)
        self.forms.append(form)
        self.kept.append(output)
        for value, part in zip(_values(output), form.parts, strict=True):
            if part is None and value is not None:
                self.left[id(value)] = index


class _Traced(StandIn):
    """A layer that notes what comes in and goes out."""

    def __init__(self, original: nn.Module, index: int, trace: Trace) -> None:
        super().__init__(original)
        self.index = index
        self.trace = trace

    def __call__(self, *args: object, **kwargs: object) -> object:
        output = cast(Any, self.original)(*args, **kwargs)
        self.trace.note(self.index, [*args, *kwargs.values()], output)
        return output


def trace(model: nn.Module, stack: Stack) -> Trace:
    """How `model` runs the layers of its `stack`. Raises Fatal where it does something that cannot be split."""
    found = Trace()
    layers = list(stack.layers)
    stack.layers[:] = [_Traced(layer, index, found) for index, layer in enumerate(layers)]
    try:
        cast(Any, model)(mx.zeros((BATCH, LENGTH), mx.int32), cache=new_layers(model))
    except Fatal:
        raise
    except Exception as error:
        raise Fatal(f"the model cannot be run with its layers exchanged: {type(error).__name__}: {error}") from error
    finally:
        stack.layers[:] = layers
    if len(found.forms) != len(layers):
        raise Fatal(f"the model runs {len(found.forms)} of its {len(layers)} layers: they are no simple stack")
    return found


def first_array(args: Sequence[object], kwargs: Mapping[str, object]) -> mx.array:
    """The hidden state among a layer's arguments: its first array."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, mx.array):
            return value
    raise Fatal("a layer of the model is given no array")


def _form(output: object) -> Form:
    parts = tuple(_carried(value) for value in _values(output))
    if not parts or parts[0] is None:
        raise Fatal("a layer of the model returns no hidden state of one row a token: it cannot be split by layers")
    return Form(parts, isinstance(output, tuple))


def _carried(value: object) -> Carried | None:
    if isinstance(value, mx.array) and value.ndim >= 2 and value.shape[:2] == (BATCH, LENGTH):
        return Carried(tuple(value.shape[2:]), value.dtype)
    return None


def _values(output: object) -> tuple[object, ...]:
    return cast(tuple[object, ...], output) if isinstance(output, tuple) else (output,)
