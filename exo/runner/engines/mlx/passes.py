"""One step's slices, computed in as few passes as pay, and timed."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import mlx.core as mx
from mlx_lm.generate import generation_stream

from exo.runner.engines.mlx.schedule import Slice, shared_passes
from exo.runner.engines.mlx.slices import SlicePace

Key = TypeVar("Key")
Output = TypeVar("Output")


def compute_passes(
    slices: Sequence[Slice[Key]], pace: SlicePace, compute: Callable[[Sequence[Slice[Key]]], Sequence[Output]]
) -> list[Output]:
    """What `compute` gives for each pass. Tells the pace how long they took, less what decoding still had to do."""
    mx.synchronize(generation_stream)
    began = time.perf_counter()
    passes = shared_passes(slices)
    outputs = [output for group in passes for output in compute(group)]
    pace.took(len(passes), sum(slice_.tokens for slice_ in slices), time.perf_counter() - began)
    # Temporary arrays are as large as the slice; mlx-lm gives them back after each, too.
    mx.clear_cache()
    return outputs
