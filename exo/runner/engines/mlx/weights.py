"""A model's weights, from a folder into memory."""

import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm import utils as mlx_lm_utils

from exo.errors import Fatal
from exo.models.folder import CONFIG_FILE
from exo.models.integrity import blame
from exo.models.json_file import read_object
from exo.runner.engines.base import Progress

logger = logging.getLogger(__name__)

FAULTS = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What mlx-lm lets out when a configuration makes no sense: it computes with whatever stands there."""

Cut = Callable[[nn.Module], list[nn.Module]]
"""Makes a model, whose weights are not read yet, what one rank holds of it; returns the layers that are held."""


def whole(model: nn.Module) -> list[nn.Module]:
    """Leaves the model as it is."""
    # mlx-lm's models have their blocks in `layers` by convention, not by type.
    return cast(list[nn.Module], cast(Any, model).layers)


def load_weights(folder: Path, on_progress: Progress, cut: Cut = whole) -> nn.Module:
    """The model with its weights in memory, read layer by layer; what `cut` takes away is never read.

    `folder` has passed `check_folder`. Raises Fatal, naming the file, where mlx-lm does not know the model, where the
    weights are not those that the configuration describes, and where it would need code from the folder.
    """
    load_model = cast(Callable[..., tuple[nn.Module, object]], cast(Any, mlx_lm_utils).load_model)
    try:
        model, _ = load_model(folder, lazy=True)
    except FAULTS as error:
        raise Fatal(_unknown_family(folder) or blame(folder, error)) from error
    layers = cut(model)
    on_progress(0, len(layers))
    for done, layer in enumerate(layers, 1):
        _evaluate(layer)
        on_progress(done, len(layers))
    _evaluate(model)
    _warn_of_slow_weights(model)
    return model


def _unknown_family(folder: Path) -> str | None:
    """That mlx-lm has no such family; None where it has."""
    family = read_object(folder / CONFIG_FILE).get("model_type")
    if not isinstance(family, str):
        return None
    module = mlx_lm_utils.MODEL_REMAPPING.get(family, family)
    if module.isidentifier() and find_spec(f"mlx_lm.models.{module}") is not None:
        return None
    return (
        f"mlx-lm {version('mlx-lm')} does not know the family {family!r}, which {folder / CONFIG_FILE} names as its "
        "`model_type`: choose a model of another family, or a newer exo"
    )


def _evaluate(module: nn.Module) -> None:
    """Reads the module's weights from disk. They are lazy until then."""
    mx.eval(list(arrays(cast(object, module.parameters()))))  # pyright: ignore[reportUnknownMemberType]  (untyped in mlx's stub)


def arrays(tree: object) -> Iterator[mx.array]:
    """The arrays in nested dicts, lists and tuples, as `Module.parameters` and the states of caches are."""
    match tree:
        case mx.array():
            yield tree
        case dict():
            for branch in cast(dict[str, object], tree).values():
                yield from arrays(branch)
        case list() | tuple():
            for branch in cast(Sequence[object], tree):
                yield from arrays(branch)
        case _:
            pass


def _warn_of_slow_weights(model: nn.Module) -> None:
    """MLX has fast CPU kernels for float32 only: 16-bit weights were measured at half its speed, or far less."""
    if mx.default_device().type != mx.DeviceType.cpu:
        return
    if any(array.dtype in (mx.float16, mx.bfloat16) for array in arrays(cast(object, model.parameters()))):
        logger.warning("these weights are 16-bit, which MLX computes slowly on a CPU; float32 weights are faster")
