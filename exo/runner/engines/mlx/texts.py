"""Texts that are to become vectors, on their way through a model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

import mlx.core as mx
import numpy as np
from mlx import nn

from exo.domain.embedding import Pooling
from exo.domain.ids import TaskId
from exo.runner.engines.mlx.hidden_states import HiddenStates
from exo.runner.engines.mlx.layers import LayerCache, evaluate, new_layers, total_bytes
from exo.runner.engines.mlx.prefix_cache import Tokens
from exo.runner.engines.vectors import Row

CONSIDERED = 256
"""Texts of a request that may be next: enough to fill a pass, and few enough to be sorted at each step."""


@dataclass(slots=True, eq=False)
class Text:
    """One of them. A long one takes several slices, and has a state in between."""

    index: int
    """In its request."""
    tokens: Tokens
    done: int = 0
    layers: list[LayerCache] | None = None
    """The state after `done` tokens, where there are more to come."""
    pooled: mx.array | None = None
    """Of the outputs so far: their sum, or the last one."""

    @property
    def left(self) -> int:
        """Tokens that are not computed yet."""
        return len(self.tokens) - self.done

    @property
    def nbytes(self) -> int:
        """Bytes of its state."""
        return total_bytes(self.layers or [])

    def advance(self, model: nn.Module, states: HiddenStates, count: int, pooling: Pooling) -> None:
        """Computes `count` more tokens."""
        at_once = count == len(self.tokens) and states.together
        if self.layers is None and not at_once:
            self.layers = new_layers(model)
        tokens = mx.array(self.tokens[self.done : self.done + count].tolist())
        (hidden,) = states.of(tokens[None], self.layers)
        pooled = hidden[-1] if pooling == "last" else hidden.sum(axis=0)
        self.pooled = pooled if pooling == "last" or self.pooled is None else self.pooled + pooled
        mx.eval(self.pooled)
        evaluate(self.layers or [])
        self.done += count

    def row(self, pooling: Pooling) -> Row:
        """What the text is pooled to, once all of it is computed."""
        assert self.pooled is not None
        return _numbers(self.pooled / len(self.tokens) if pooling == "mean" else self.pooled)


@dataclass(slots=True, eq=False)
class TextsRequest:
    """All texts of one request that are not vectors yet."""

    task_id: TaskId
    texts: dict[int, Text]
    """By index, the shortest first: those of about one length share a pass."""
    pooling: Pooling
    dimensions: int
    arrived: int
    """Its number in the order of arrival."""
    deadline: float
    """When it no longer waits for memory, on the engine's clock."""
    total: int = field(init=False)
    """Tokens of all its texts."""
    reserved: int = field(init=False)
    """Tokens that memory is set aside for: one text at a time has a state."""
    done: int = 0
    """Tokens that are computed."""
    begun: Text | None = None
    """The one that has a state."""

    def __post_init__(self) -> None:
        lengths = [text.left for text in self.texts.values()]
        self.total, self.reserved = sum(lengths), max(lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of its state."""
        return self.begun.nbytes if self.begun else 0

    def next_texts(self) -> Sequence[Text]:
        """Those that may be computed now."""
        return [self.begun] if self.begun else list(islice(self.texts.values(), CONSIDERED))

    def note(self, text: Text, tokens: int) -> None:
        """So many more tokens of a text are computed."""
        self.done += tokens
        self.begun = text if text.left else None


def sorted_texts(inputs: Iterable[Tokens]) -> dict[int, Text]:
    """Texts by their index, the shortest first."""
    texts = sorted((Text(index, tokens) for index, tokens in enumerate(inputs)), key=lambda text: text.left)
    return {text.index: text for text in texts}


def rows_together(states: HiddenStates, texts: Sequence[Text], poolings: Sequence[Pooling]) -> Sequence[Row]:
    """What whole texts are pooled to, each in its own way, computed in one pass."""
    lengths = [len(text.tokens) for text in texts]
    padded = np.zeros((len(texts), max(lengths)), dtype=np.int64)
    for place, text in zip(padded, texts, strict=True):
        place[: len(text.tokens)] = text.tokens
    hidden = states.of(mx.array(padded), None)
    ends = mx.array(lengths)[:, None]
    inside = mx.arange(padded.shape[1])[None] < ends
    means = mx.where(inside[..., None], hidden, 0).sum(axis=1) / ends
    lasts = hidden[mx.arange(len(texts)), mx.array(lengths) - 1]
    is_mean = mx.array([pooling == "mean" for pooling in poolings])
    rows = list(_numbers(mx.where(is_mean[:, None], means, lasts)))
    for text in texts:
        text.done = len(text.tokens)
    return rows


def _numbers(array: mx.array) -> Row:
    return cast(Row, np.array(array))
