"""Torch's numbers as the neutral form has them, and back, bit by bit."""

import numpy as np
import torch

from exo.errors import Retryable
from exo.runner.kv.form import DType, Numbers

TORCH: dict[DType, torch.dtype] = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Torch's types by our names."""
NAMES: dict[torch.dtype, DType] = {given: name for name, given in TORCH.items()}


def numbers_of(tensor: torch.Tensor) -> Numbers:
    """A tensor in the host's memory, which it shares."""
    raw = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    return Numbers(NAMES[tensor.dtype], raw.numpy())


def tensor_of(numbers: Numbers, name: DType) -> torch.Tensor:
    """A tensor in the host's memory, rounded where it is to be of another type. It may share the array's memory.

    Raises Retryable where a number is too large for the type.
    """
    raw = np.require(numbers.raw, requirements=["C", "W"])
    given = torch.from_numpy(raw).view(TORCH[numbers.dtype])
    if name == numbers.dtype:
        return given
    rounded = given.to(TORCH[name])
    if not torch.isfinite(rounded).all():
        raise Retryable(f"numbers of {numbers.dtype} are too large for {name}")
    return rounded
