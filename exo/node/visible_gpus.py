"""Which GPUs CUDA shows to this node's processes, of those that NVML lists: NVML heeds no `CUDA_VISIBLE_DEVICES`.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from exo.node.nvml import Nvml, handles, said

VARIABLE = "CUDA_VISIBLE_DEVICES"
SLICE = "MIG-"
"""Begins the UUID of a part of a GPU."""


@contextmanager
def visible_handles(library: Nvml) -> Generator[list[object]]:
    """Of `handles`, those that CUDA shows, in the order in which it numbers them."""
    with handles(library) as found:
        uuids = [_uuid(library, handle) for handle in found]
        yield [found[index] for index in visible(os.environ.get(VARIABLE), uuids)]


def visible(wanted: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """The GPUs, as indices of `uuids`, that `wanted` leaves: indices or (beginnings of) UUIDs, separated by commas.

    None leaves all. The first that is no GPU and those behind it do not count; one that is named twice leaves none.
    Parts of a GPU (MIG) are not told apart: where one is named, all GPUs are left.
    """
    if wanted is None or SLICE in wanted:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for name in wanted.split(","):
        index = _index(name.strip(), uuids)
        if index is None:
            break
        found.append(index)
    return tuple(found) if len(set(found)) == len(found) else ()


def _index(name: str, uuids: Sequence[str]) -> int | None:
    if name.isdecimal():
        return int(name) if int(name) < len(uuids) else None
    matching = [index for index, uuid in enumerate(uuids) if name and uuid.startswith(name)]
    return matching[0] if len(matching) == 1 else None


def _uuid(library: Nvml, handle: object) -> str:
    uuid = said(library, lambda: library.nvmlDeviceGetUUID(handle)) or ""
    return uuid.decode(errors="replace") if isinstance(uuid, bytes) else uuid
