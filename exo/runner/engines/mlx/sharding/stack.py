"""The layers of a model, found where it keeps them, and what can stand in for one of them."""

from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
from mlx import nn

from exo.errors import Fatal
from exo.runner.engines.mlx.weights import whole


@dataclass(frozen=True, slots=True)
class Stack:
    """A model's repeated blocks, first to last."""

    owner: nn.Module
    """The module whose list it is."""
    layers: list[nn.Module]
    """The list itself: what is put into it the model runs."""


def find_stack(model: nn.Module) -> Stack:
    """Where `model` keeps what it shows as its `layers`. Raises Fatal where that is no list of one of its modules."""
    shown = list(whole(model)) if hasattr(model, "layers") else []
    for module in cast(list[nn.Module], cast(Any, model).modules()):
        for value in cast(dict[str, object], module).values():
            if isinstance(value, list) and _are_same(cast(list[object], value), shown):
                return Stack(module, cast(list[nn.Module], value))
    raise Fatal(f"a model of the kind {type(model).__module__} has no list of layers that could be split")


def _are_same(one: list[object], other: list[nn.Module]) -> bool:
    return bool(other) and len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


class StandIn(nn.Module):
    """Takes the place of a layer. To whoever asks for its properties (is it linear? does its window slide?) it answers
    as the layer would; the layer's weights are not its own."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.__dict__["original"] = original  # past MLX's bookkeeping, which would count its weights as ours

    @property
    def original(self) -> nn.Module:
        """The layer."""
        return cast(nn.Module, self.__dict__["original"])

    def __getattr__(self, key: str) -> object:
        own = cast(dict[str, object], self)
        return own[key] if key in own else getattr(self.original, key)


def forget_weights(layer: nn.Module) -> None:
    """Drops a layer's weights, and with them the files that they would be read from."""
    for module in cast(list[dict[str, object]], cast(Any, layer).modules()):
        for name in [name for name, value in module.items() if isinstance(value, mx.array) and name[0] != "_"]:
            del module[name]
