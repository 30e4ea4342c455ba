"""A stack of layers over several ranks, for any model: rank 0 holds the last layers, the last rank the first ones.

That is mlx-lm's own order. A rank runs the whole model, with a stand-in for each layer. One that another rank holds
does no work, except that the one before this rank's first layer receives, and the last of all takes part in the
exchange by which every rank gets what the last layer gave: so all of them choose the same tokens.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
from mlx import nn

from exo.errors import Fatal
from exo.runner.engines.mlx.sharding.caches import advance, arrays, is_cache, tie
from exo.runner.engines.mlx.sharding.stack import Stack, StandIn, forget_weights
from exo.runner.engines.mlx.sharding.trace import Form, Trace, first_array, trace


@dataclass(slots=True)
class Stage:
    """This rank's part of a stack: layers `start <= layer < end`, and what happens at its borders."""

    group: mx.distributed.Group
    start: int
    end: int
    forms: list[Form]
    cache: object | None = None
    """The one seen last on the way through the model."""
    sent: mx.array | None = None
    """Not tied to a cache yet."""
    aside: list[mx.array] = field(default_factory=list[mx.array])
    """What nobody would evaluate, and so would grow from token to token."""

    def enter(self, index: int, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """A layer begins, with these arguments."""
        if index == 0:
            self.cache, self.sent = None, None
            self.aside.clear()
        cache = next((value for value in (*args, *kwargs.values()) if is_cache(value)), None)
        if cache is None:
            return
        self.cache = cache
        if not self.start <= index < self.end:
            self._pass_by(cache, first_array(args, kwargs), self.forms[index].carried[0].dtype)

    def leave(self, index: int, output: object, like: mx.array) -> object:
        """What a layer's output is for the model, after what happens at this border."""
        if index == self.end - 1 and self.group.rank() > 0:
            output = self._send(self.forms[index], output)
        if index == self.start - 1:
            output = self._receive(self.forms[index], like)
        if index == len(self.forms) - 1:
            output = self._share(self.forms[index], output)
        return output

    def _pass_by(self, cache: object, hidden: mx.array, dtype: mx.Dtype) -> None:
        advance(cache, hidden.shape[0], hidden.shape[1], dtype)
        if self.sent is not None and tie(cache, self.sent):
            self.sent = None
        self.aside += arrays(cache)

    def _send(self, form: Form, output: object) -> object:
        """A prompt's tokens are computed for the caches alone: with the caches must go what the next rank waits for."""
        packed = _pack(form, form.take(output))
        sent = mx.distributed.send(packed, self.group.rank() - 1, group=self.group)
        self.aside.append(sent)
        if self.cache is None or not tie(self.cache, sent):
            self.sent = sent
        return output

    def _receive(self, form: Form, like: mx.array) -> object:
        shape, dtype = _packed(form, like)
        return form.make(_unpack(form, mx.distributed.recv(shape, dtype, self.group.rank() + 1, group=self.group)))

    def _share(self, form: Form, output: object) -> object:
        packed = _pack(form, form.take(output))
        if self.aside:
            packed = cast(mx.array, mx.depends(packed, self.aside))
            self.aside = []
        shared = mx.distributed.all_gather(packed, group=self.group)[: packed.shape[0]]
        return form.make(_unpack(form, shared))


class _Held(StandIn):
    """A layer of this rank."""

    def __init__(self, layer: nn.Module, index: int, stage: Stage) -> None:
        super().__init__(layer)
        self.layer = layer  # its weights are ours
        self.index = index
        self.stage = stage

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.stage.enter(self.index, args, kwargs)
        output = cast(Any, self.layer)(*args, **kwargs)
        return self.stage.leave(self.index, output, first_array(args, kwargs))


class _Absent(StandIn):
    """A layer of another rank."""

    def __init__(self, layer: nn.Module, index: int, stage: Stage) -> None:
        super().__init__(layer)
        self.index = index
        self.stage = stage

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.stage.enter(self.index, args, kwargs)
        like = first_array(args, kwargs)
        form = self.stage.forms[self.index]
        nothing = form.make(mx.zeros((*like.shape[:2], *part.row), part.dtype) for part in form.carried)
        return self.stage.leave(self.index, nothing, like)


def split_stack(model: nn.Module, stack: Stack, start: int, end: int, group: mx.distributed.Group) -> list[nn.Module]:
    """Makes `model` one that has layers `start <= layer < end` here and the others on other ranks; its own layers.

    Raises Fatal where the model passes something between its layers that cannot be sent.
    """
    found = trace(model, stack)
    _check_borrowed(found, start, end)
    stage = Stage(group, start, end, found.forms)
    held: list[nn.Module] = []
    for index, layer in enumerate(stack.layers):
        if start <= index < end:
            stack.layers[index] = _Held(layer, index, stage)
            held.append(layer)
        else:
            forget_weights(layer)
            stack.layers[index] = _Absent(layer, index, stage)
    return held


def _check_borrowed(found: Trace, start: int, end: int) -> None:
    for index in range(start, end):
        if lenders := [lender for lender in found.borrowed[index] if not start <= lender < end]:
            raise Fatal(
                f"layer {index} of this model uses keys and values of layer {min(lenders)}, which another runner holds"
            )


def _packed(form: Form, like: mx.array) -> tuple[tuple[int, ...], mx.Dtype]:
    """Shape and type of what one message carries, for the batch and the tokens of `like`."""
    carried = form.carried
    batch, length = like.shape[:2]
    return (batch, length, sum(part.width for part in carried)), _common_type(form)


def _pack(form: Form, values: list[mx.array]) -> mx.array:
    """All that is carried in one array: two messages could overtake each other."""
    dtype = _common_type(form)
    return mx.concatenate([value.reshape(*value.shape[:2], -1).astype(dtype) for value in values], axis=-1)


def _unpack(form: Form, packed: mx.array) -> list[mx.array]:
    values: list[mx.array] = []
    at = 0
    for part in form.carried:
        rows = packed[..., at : at + part.width].astype(part.dtype)
        values.append(rows.reshape(*packed.shape[:2], *part.row))
        at += part.width
    return values


def _common_type(form: Form) -> mx.Dtype:
    """One that holds each part's numbers exactly."""
    carried = form.carried
    return mx.float32 if len({part.dtype for part in carried}) > 1 else carried[0].dtype
