"""A state that is kept for the next request that begins with the same tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from exo.runner.engines.mlx.layers import (
    LayerCache,
    compact_copy,
    cut,
    evaluate,
    grows,
    joined,
    parts,
    shared_copy,
    total_bytes,
)

Before: TypeAlias = "LayerCache | tuple[Before, ...] | None"
"""An earlier state of one layer; of its parts where it has several; None where it can be had from the later one."""

Snapshot = Sequence[Before]
"""An earlier state of all layers."""


def snapshot(layers: Sequence[LayerCache]) -> Snapshot:
    """What must be copied of a state now, if it is to be had later."""
    befores = [_before(layer) for layer in layers]
    evaluate(copied(befores))
    return befores


def copied(befores: Snapshot) -> Iterator[LayerCache]:
    """The caches that a snapshot holds copies of."""
    for before in befores:
        if isinstance(before, tuple):
            yield from copied(before)
        elif before is not None and not before.empty():
            yield before


def _before(layer: LayerCache) -> Before:
    if grows(layer):
        return None
    return tuple(_before(part) for part in parts(layer)) if parts(layer) else compact_copy(layer)


def _rewound(layer: LayerCache, before: Before, length: int, wanted: int) -> LayerCache:
    """A copy of a layer as it was at `wanted` tokens of `length`."""
    if before is None:
        return cut(layer, length, wanted)
    if isinstance(before, tuple):
        together = zip(parts(layer), before, strict=True)
        return joined(_rewound(part, part_before, length, wanted) for part, part_before in together)
    return shared_copy(before)


@dataclass(slots=True)
class Kept:
    """What the model keeps after `length` tokens, and what is needed to go back to fewer."""

    length: int
    layers: Sequence[LayerCache]
    snapshots: dict[int, Snapshot] = field(default_factory=dict[int, Snapshot])
    """By length in tokens. Empty where every layer grows."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return total_bytes(self.layers) + sum(total_bytes(copied(found)) for found in self.snapshots.values())

    def nearest(self, wanted: int) -> int:
        """The most tokens, up to `wanted`, whose state `restored` can give. 0 is the state of none."""
        if wanted >= self.length:
            return self.length
        if all(layer.is_trimmable() for layer in self.layers):
            return wanted
        return max((length for length in self.snapshots if length <= wanted), default=0)

    def restored(self, length: int) -> list[LayerCache]:
        """The state after `length` tokens, which `nearest` gave; to be written to at will."""
        befores = self.snapshots.get(length) or [None] * len(self.layers)
        together = zip(self.layers, befores, strict=True)
        return [_rewound(layer, before, self.length, length) for layer, before in together]

    def take_over(self, shorter: "Kept") -> None:
        """Takes the snapshots of fewer, or as many, of the same tokens, and that state itself where it is one too."""
        self.snapshots = {**shorter.snapshots, **self.snapshots}
        if shorter.length < self.length and not all(map(grows, shorter.layers)):
            self.snapshots.setdefault(shorter.length, snapshot(shorter.layers))
