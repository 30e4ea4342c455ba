"""Numbers go from torch to MLX and back bit by bit."""

import numpy as np
import pytest

from exo.errors import Retryable
from exo.runner.kv.form import DTYPES, RAW, DType, Numbers
from tests.conftest import needs_mlx, needs_vllm

torch = pytest.importorskip("torch")

from exo.runner.engines.vllm.kv.numbers import TORCH, numbers_of, tensor_of  # noqa: E402  (torch is not everywhere)

pytestmark = needs_vllm


def every_kind(dtype: DType) -> Numbers:
    """Subnormal numbers, both zeros and infinities, numbers that are none, and others: [tokens, heads, size]."""
    width = RAW[dtype].itemsize
    bits = np.random.default_rng(3).integers(0, 2 ** (8 * width), (64, 4, 16), dtype=f"u{width}")
    exponent = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}[dtype]
    bits[0, 0, :6] = [0, 1, 1 << (8 * width - 1), exponent, exponent + 1, exponent | 1 << (8 * width - 1)]
    return Numbers(dtype, bits.view(RAW[dtype]))


def same(one: Numbers, other: Numbers) -> bool:
    return (one.dtype, one.shape, one.raw.tobytes()) == (other.dtype, other.shape, other.raw.tobytes())


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_keeps_every_bit(dtype: DType) -> None:
    given = every_kind(dtype)
    tensor = tensor_of(given, dtype)
    assert tensor.dtype == TORCH[dtype]
    assert same(numbers_of(tensor), given)


@needs_mlx
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_torch_has_is_what_mlx_has_and_the_other_way(dtype: DType) -> None:
    from exo.runner.engines.mlx import arrays

    given = every_kind(dtype)
    array = arrays.array_of(numbers_of(tensor_of(given, dtype)), arrays.DTYPES[dtype])
    assert same(numbers_of(tensor_of(arrays.numbers_of(array), dtype)), given)
    plain = np.linspace(-3, 3, 96, dtype="<f4").reshape(2, 3, 16)
    tensor = torch.from_numpy(plain).to(TORCH[dtype])
    array = arrays.array_of(numbers_of(tensor), arrays.DTYPES[dtype])
    assert array.tolist() == tensor.tolist()


def test_numbers_of_another_type_are_rounded_unless_they_are_too_large() -> None:
    third = Numbers("float32", np.full((1, 1, 2), 1 / 3, "<f4"))
    assert tensor_of(third, "bfloat16").dtype == torch.bfloat16
    assert tensor_of(third, "bfloat16").tolist() == [[[0.333984375, 0.333984375]]]
    large = Numbers("float32", np.full((1, 1, 2), 1e6, "<f4"))
    with pytest.raises(Retryable, match="too large for float16"):
        tensor_of(large, "float16")
