"""safetensors files: their headers read with every figure checked, and written piece by piece.

Format: 8 bytes little-endian length, that many bytes of JSON, then the data
(https://huggingface.co/docs/safetensors). The library's own writer wants all tensors in memory at once; this one
holds one piece.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from exo.errors import Rejected
from exo.models.json_file import Json, parse_object

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Of the number types whose elements are whole bytes."""

LARGEST_HEADER = 100_000_000
"""The library's own limit."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor as the header names it; `dtype` in safetensors' spelling: F32, F16, BF16, U32."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says that it holds."""

    tensors: tuple[TensorEntry, ...]
    file_bytes: int
    """That the file has when it is complete."""


def read_header(path: Path) -> Header:
    """The file's header. Raises Rejected, naming the file, when it is missing, malformed or cut inside the header."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            text = file.read(length) if 2 <= length <= LARGEST_HEADER else b""
    except OSError as error:
        raise Rejected(f"{path} cannot be read ({error.strerror}): fetch it again") from error
    if len(text) != length or not text:
        raise Rejected(f"{path} is no safetensors file, or cut: fetch it again")
    entries = parse_object(text, f"the header of {path}")
    entries.pop("__metadata__", None)
    tensors = [_entry(path, name, value) for name, value in entries.items()]
    return Header(tuple(entry for entry, _ in tensors), 8 + length + max((end for _, end in tensors), default=0))


def _entry(path: Path, name: str, value: Json) -> tuple[TensorEntry, int]:
    match value:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]} if 0 <= start <= end:
            sizes = tuple(cast(int, size) for size in shape if isinstance(size, int) and size >= 0)
            whole = math.prod(sizes) * ITEM_BYTES[dtype] if dtype in ITEM_BYTES else end - start
            if len(sizes) == len(shape) and end - start == whole:
                return TensorEntry(name, dtype, sizes, end - start), end
        case _:
            pass
    raise Rejected(f"{path} describes the tensor {name!r} in a way that is no safetensors: fetch the file again")


def write_tensors(
    path: Path, entries: Sequence[TensorEntry], chunks: Callable[[TensorEntry], Iterable[NDArray[np.generic]]]
) -> None:
    """Writes the file; `chunks` gives each tensor's numbers in order, in C-contiguous pieces of any size.

    Raises ValueError when they are not as many bytes as the entry says.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        end = offset + entry.bytes
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in entries:
            written = sum(file.write(piece.data.cast("B")) for piece in chunks(entry))
            if written != entry.bytes:
                raise ValueError(f"{entry.name}: {written} bytes, where the header says {entry.bytes}")
