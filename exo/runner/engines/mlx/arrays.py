"""Arrays of MLX as those that belong to no engine, and back, bit by bit."""

from typing import Any, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from exo.errors import Rejected
from exo.runner.kv.form import DType, Numbers

DTYPES: dict[DType, mx.Dtype] = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def dtype_name(dtype: mx.Dtype) -> DType | None:
    """The name that all engines know; None for another one."""
    return next((name for name, known in DTYPES.items() if known == dtype), None)


def numbers_of(array: mx.array) -> Numbers:
    """A copy, which any thread may have. Waits until the array is computed."""
    name = dtype_name(array.dtype)
    assert name is not None, "what cannot be exchanged is refused before"
    raw = array.view(mx.uint16) if name == "bfloat16" else array
    return Numbers(name, cast(npt.NDArray[np.generic], np.array(raw)))


def array_of(numbers: Numbers, dtype: mx.Dtype) -> mx.array:
    """The numbers as an array of a type, rounded where it is another one than theirs.

    Raises Rejected where one of them is too large for it.
    """
    raw = mx.array(cast(Any, np.ascontiguousarray(numbers.raw).reshape(numbers.shape)))
    array = raw.view(mx.bfloat16) if numbers.dtype == "bfloat16" else raw
    if array.dtype == dtype:
        return array
    converted = array.astype(dtype)
    if mx.any(mx.isinf(converted)).item():
        raise Rejected(f"numbers of {numbers.dtype} are too large for {dtype}")
    return converted
