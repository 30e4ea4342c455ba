"""The border to mlx-lm's caches: what one layer keeps of the tokens so far. A model's state is a list, one a layer.

There are three kinds. Growing ones (`KVCache`) keep every token, so that their state at any earlier length is in them.
Rotating ones keep a window of tokens, and recurrent ones (`ArraysCache`) a sum of all: where they are past their window
an earlier state can only be had if it was kept. A `CacheList` has several in one layer.

Copies share their arrays: MLX's are never changed in place while two hold them.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache


class LayerCache(Protocol):
    """What is used of mlx-lm's caches, whose own types are partial."""

    @property
    def nbytes(self) -> int: ...
    @property
    def state(self) -> object: ...
    def empty(self) -> bool: ...
    def is_trimmable(self) -> bool: ...
    def trim(self, n: int) -> int: ...
    def extract(self, idx: int) -> "LayerCache": ...
    def merge(self, caches: Sequence["LayerCache"]) -> "LayerCache": ...


def new_layers(model: nn.Module) -> list[LayerCache]:
    """A state of no tokens."""
    return cast(Callable[[nn.Module], list[LayerCache]], make_prompt_cache)(model)


def tried(model: nn.Module) -> list[LayerCache]:
    """A state of one token, which shows what the model keeps."""
    layers = new_layers(model)
    cast(Callable[..., object], model)(mx.array([[0]]), cache=layers)
    evaluate(layers)
    return layers


def evaluate(layers: Iterable[LayerCache]) -> None:
    """Computes a state that was only described so far."""
    mx.eval([layer.state for layer in layers])


def parts(layer: object) -> Sequence[LayerCache]:
    """The caches of a layer that has several; none for a layer that is one itself."""
    return cast(Sequence[LayerCache], cast(Any, layer).caches) if isinstance(layer, CacheList) else ()


def leaves(layers: Iterable[LayerCache]) -> Iterator[LayerCache]:
    """All caches of a state, those of a layer that has several one after the other."""
    for layer in layers:
        if parts(layer):
            yield from leaves(parts(layer))
        else:
            yield layer


def joined(layers: Iterable[LayerCache]) -> LayerCache:
    """The layer that has these caches."""
    return cast(Callable[..., LayerCache], CacheList)(*layers)


def grows(layer: LayerCache) -> bool:
    """Whether it keeps every token."""
    return all(map(grows, parts(layer))) if parts(layer) else isinstance(layer, KVCache)


def can_batch(layer: LayerCache) -> bool:
    """Whether mlx-lm can decode several requests with caches of this kind side by side."""
    return all(map(can_batch, parts(layer))) if parts(layer) else hasattr(layer, "merge")


def total_bytes(layers: Iterable[LayerCache]) -> int:
    """Bytes of the arrays."""
    return sum(layer.nbytes for layer in layers)


def shared_copy(layer: LayerCache) -> LayerCache:
    """A copy that may be written to without the original's noticing; until then it takes no memory."""
    return copy.deepcopy(layer)


def compact_copy(layer: LayerCache) -> LayerCache:
    """A copy in arrays of its own that hold nothing else; not computed yet.

    What was cut out of a larger array can hold all of that in memory, and a rotating cache keeps more than its window
    while a prompt is computed. A batch of this one alone has neither.
    """
    return shared_copy(layer) if layer.empty() else layer.merge([layer]).extract(0)


def cut(layer: LayerCache, length: int, wanted: int) -> LayerCache:
    """A copy of a state of `length` tokens as it was at `wanted` tokens. It must be trimmable.

    A growing one is a view of its beginning: to trim its offset alone would copy all of it at the next write.
    """
    if parts(layer):
        return joined(cut(part, length, wanted) for part in parts(layer))
    if isinstance(layer, KVCache) and not layer.empty():
        keys, values = cast(tuple[mx.array, mx.array], (cast(Any, layer).keys, cast(Any, layer).values))
        beginning = KVCache()
        beginning.state = (keys[..., :wanted, :], values[..., :wanted, :], wanted)
        return cast(LayerCache, beginning)
    copied = shared_copy(layer)
    if wanted < length:
        copied.trim(length - wanted)
    return copied
