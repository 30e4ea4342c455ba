"""GGUF files: header and tensor table, every length checked against the file before it is followed.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. The `gguf`
package's reader trusts the lengths (an array that claims 2^60 items is followed without end) and takes seconds for
the vocabularies, because it makes one array per item; so the header is read here, and the package is used for what
it knows best: the tensor types, their block sizes and their dequantization.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from exo.errors import Rejected
from exo.models.gguf.metadata import Metadata, Value

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Value types of the format, as `struct` spells them."""
STRING, ARRAY = 8, 9

LARGEST_ARRAY = 1 << 24
"""Items. The largest vocabularies have 262,144."""
LARGEST_TEXT = 64 << 20
LARGEST_COUNT = 1 << 20
"""Of keys and of tensors. The largest models have some thousands."""
LARGEST_DIMENSIONS = 4

READABLE = frozenset(
    GGMLQuantizationType[name]
    for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
)
"""Tensor types that `gguf.quants` turns back into numbers."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies. `shape` is row-major, as in numpy: the reverse of the file's own order."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    """From the beginning of the file, in bytes."""
    bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An open GGUF file. Its data is mapped, not read, until a tensor's rows are asked for."""

    path: Path
    metadata: Metadata
    tensors: Mapping[str, GgufTensor]
    data: NDArray[np.uint8]

    def rows(self, tensor: GgufTensor) -> NDArray[np.uint8]:
        """The tensor's bytes as they are in the file, shape [rows, bytes a row]; a vector is one row."""
        raw = self.data[tensor.offset : tensor.offset + tensor.bytes]
        return raw.reshape(prod(tensor.shape[:-1]), -1)


class _Cursor:
    """Reads forward through the mapped file; refuses to go past its end."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path = path
        self.data = data.data
        self.offset = 0

    def refuse(self, what: str) -> Rejected:
        return Rejected(f"{self.path} is no usable GGUF file: {what} (at byte {self.offset:,}): fetch it again")

    def take(self, count: int) -> memoryview:
        end = self.offset + count
        if end > len(self.data):
            raise self.refuse(f"it ends at {len(self.data):,} bytes, inside its header")
        piece = self.data[self.offset : end]
        self.offset = end
        return piece

    def scalar(self, code: str) -> int | float | bool:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, code: str, most: int, what: str) -> int:
        number = int(self.scalar(code))
        if number > most:
            raise self.refuse(f"it claims {number:,} {what}, more than the {most:,} that any model has")
        return number

    def text(self) -> str:
        length = self.count("Q", LARGEST_TEXT, "bytes of text")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise self.refuse("a text in it is not UTF-8") from error

    def value(self) -> Value:
        kind = int(self.scalar("I"))
        return self.array() if kind == ARRAY else self.single(kind)

    def single(self, kind: int) -> str | int | float | bool:
        if kind == STRING:
            return self.text()
        if kind not in SCALARS:
            raise self.refuse(f"a value in it has the unknown type {kind}")
        return self.scalar(SCALARS[kind])

    def array(self) -> Value:
        kind = int(self.scalar("I"))
        length = self.count("Q", LARGEST_ARRAY, "items in one list")
        if kind == STRING:
            return [self.text() for _ in range(length)]
        if kind not in SCALARS:
            raise self.refuse(f"a list in it has items of the unknown type {kind}")
        code = SCALARS[kind]
        return list(struct.unpack(f"<{length}{code}", self.take(length * struct.calcsize("<" + code))))


def open_gguf(path: Path) -> GgufFile:
    """The file's metadata and tensor table.

    Raises Rejected, naming the file and what to do, for a missing file, another format, a truncated or inconsistent
    file, absurd counts, and tensor types that cannot be read.
    """
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    except OSError as error:
        raise Rejected(f"{path} cannot be read ({error.strerror})") from error
    cursor = _Cursor(path, data)
    key_count, tensor_count = _counts(cursor)
    values: dict[str, Value] = {}
    for _ in range(key_count):
        key = cursor.text()
        if key in values:
            raise cursor.refuse(f"the key {key!r} is in it twice")
        values[key] = cursor.value()
    metadata = Metadata(path, values)
    found = [_tensor(cursor) for _ in range(tensor_count)]
    alignment = metadata.whole("general.alignment", 32, most=1 << 20)
    start = -(-cursor.offset // alignment) * alignment
    return GgufFile(path, metadata, _placed(cursor, found, start, alignment), data)


def _counts(cursor: _Cursor) -> tuple[int, int]:
    """(keys, tensors), after the magic and the version."""
    if bytes(cursor.data[:4]) != MAGIC:
        raise cursor.refuse(f"it begins with {bytes(cursor.data[:4])!r}, not with {MAGIC!r}")
    cursor.take(4)
    version = int(cursor.scalar("I"))
    if version not in VERSIONS:
        raise Rejected(
            f"{cursor.path} has the GGUF version {version}; little-endian versions 2 and 3 are read: "
            "convert the model anew with a current llama.cpp"
        )
    tensor_count = cursor.count("Q", LARGEST_COUNT, "tensors")
    return cursor.count("Q", LARGEST_COUNT, "keys"), tensor_count


def _tensor(cursor: _Cursor) -> GgufTensor:
    """The next row of the tensor table; its offset still counts from the beginning of the data."""
    name = cursor.text()
    dimensions = cursor.count("I", LARGEST_DIMENSIONS, f"dimensions of {name!r}")
    shape = tuple(int(cursor.scalar("Q")) for _ in range(dimensions))[::-1]
    number = int(cursor.scalar("I"))
    offset = int(cursor.scalar("Q"))
    kind = next((kind for kind in READABLE if kind.value == number), None)
    if kind is None:
        known = {member.value: member.name for member in GGMLQuantizationType}
        raise Rejected(
            f"{cursor.path}: the tensor {name!r} has the type {known.get(number, number)}, which is not supported: "
            f"take a file in one of {', '.join(sorted(kind.name for kind in READABLE))}"
        )
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if not shape or 0 in shape or shape[-1] % block:
        raise cursor.refuse(f"the tensor {name!r} has the shape {shape}, which {kind.name} cannot hold")
    return GgufTensor(name, kind, shape, offset, prod(shape) // block * block_bytes)


def _placed(cursor: _Cursor, found: list[GgufTensor], start: int, alignment: int) -> dict[str, GgufTensor]:
    """The tensors by name, with offsets from the beginning of the file, each one inside the file."""
    size = len(cursor.data)
    placed: dict[str, GgufTensor] = {}
    for tensor in found:
        offset = start + tensor.offset
        if tensor.name in placed or tensor.offset % alignment:
            raise cursor.refuse(f"the tensor {tensor.name!r} is in it twice or off its alignment of {alignment}")
        if offset + tensor.bytes > size:
            raise Rejected(
                f"{cursor.path} is cut: the tensor {tensor.name!r} ends at byte {offset + tensor.bytes:,}, "
                f"the file at {size:,}: fetch it again"
            )
        placed[tensor.name] = GgufTensor(tensor.name, tensor.type, tensor.shape, offset, tensor.bytes)
    return placed
