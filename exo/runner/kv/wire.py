"""A state as bytes: frame after frame, each a length of four bytes, a header of JSON, and the numbers that it tells of.

Whoever reads believes no length before it has looked at it, and holds no more than what came: a stream of somebody
else, or one that is cut off, is an error and nothing worse.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, assert_never

import numpy as np
from pydantic import Field, NonNegativeInt, TypeAdapter, ValidationError

from exo.domain.base import Frozen
from exo.errors import Retryable
from exo.runner.kv.form import (
    RAW,
    ArraysState,
    AttentionState,
    DType,
    LayerState,
    Numbers,
    Piece,
    WindowState,
    arrays_of,
)

LENGTH_BYTES = 4
"""Of a header's length, the most significant first."""
HEADER_MOST = 16 << 10
"""Bytes of a header."""
PIECE_MOST = 1 << 30
"""Bytes of the numbers of one piece. 2,048 tokens of 128 heads of 128 float32 numbers are a quarter of it."""
LAYERS_MOST = 10_000
ARRAYS_MOST = 16
AXES_MOST = 8
AXIS_MOST = 1 << 31
REASON_MOST = 1000
"""Characters."""


@dataclass(frozen=True, slots=True)
class End:
    """All pieces of a state of so many tokens were sent."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Failure:
    """There will be no state."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whoever computes the state is there, and has nothing new of it."""


Frame = Piece | End | Failure | Waiting

Read = Callable[[int], Awaitable[bytes]]
"""Exactly so many bytes of a stream. Raises Retryable where they do not come."""


class _Array(Frozen):
    dtype: DType
    shape: Annotated[tuple[Annotated[NonNegativeInt, Field(lt=AXIS_MOST)], ...], Field(max_length=AXES_MOST)]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * RAW[self.dtype].itemsize


class _PieceHeader(Frozen):
    type: Literal["attention", "window", "arrays"]
    layer: Annotated[NonNegativeInt, Field(lt=LAYERS_MOST)]
    start: NonNegativeInt = 0
    size: NonNegativeInt = 0
    arrays: Annotated[tuple[_Array | None, ...], Field(max_length=ARRAYS_MOST)]


class _EndHeader(Frozen):
    type: Literal["end"] = "end"
    tokens: NonNegativeInt


class _FailureHeader(Frozen):
    type: Literal["failure"] = "failure"
    reason: Annotated[str, Field(max_length=REASON_MOST)]


class _WaitingHeader(Frozen):
    type: Literal["waiting"] = "waiting"


_Header = _PieceHeader | _EndHeader | _FailureHeader | _WaitingHeader
_headers: TypeAdapter[_Header] = TypeAdapter(Annotated[_Header, Field(discriminator="type")])


def written(frame: Frame) -> Iterator[bytes | memoryview]:
    """A frame's bytes, in several parts."""
    match frame:
        case End(tokens):
            yield _with_length(_EndHeader(tokens=tokens))
        case Failure(reason):
            yield _with_length(_FailureHeader(reason=reason[:REASON_MOST]))
        case Waiting():
            yield _with_length(_WaitingHeader())
        case Piece():
            yield _with_length(_piece_header(frame))
            for array in arrays_of(frame.state):
                if array is not None:
                    yield np.ascontiguousarray(array.raw).reshape(-1).view(np.uint8).data
        case _:
            assert_never(frame)


async def read_frame(read: Read) -> Frame:
    """The next frame of a stream. Raises Retryable for what is none, and what `read` raises."""
    length = int.from_bytes(await read(LENGTH_BYTES), "big")
    if not 0 < length <= HEADER_MOST:
        raise Retryable(f"the stream is not one of a state: a header of {length} bytes, and {HEADER_MOST} are the most")
    try:
        header = _headers.validate_json(await read(length))
    except ValidationError as error:
        raise Retryable(f"the stream is not one of a state as this version knows it: {_short(error)}") from error
    match header:
        case _EndHeader():
            return End(header.tokens)
        case _FailureHeader():
            return Failure(header.reason)
        case _WaitingHeader():
            return Waiting()
        case _PieceHeader():
            return await _read_piece(header, read)


def _with_length(header: Frozen) -> bytes:
    line = header.model_dump_json().encode()
    return len(line).to_bytes(LENGTH_BYTES, "big") + line


def _piece_header(piece: Piece) -> _PieceHeader:
    arrays = tuple(array and _Array(dtype=array.dtype, shape=array.shape) for array in arrays_of(piece.state))
    match piece.state:
        case AttentionState():
            return _PieceHeader(type="attention", layer=piece.layer, start=piece.start, arrays=arrays)
        case WindowState(start=start, size=size):
            return _PieceHeader(type="window", layer=piece.layer, start=start, size=size, arrays=arrays)
        case ArraysState():
            return _PieceHeader(type="arrays", layer=piece.layer, arrays=arrays)


async def _read_piece(header: _PieceHeader, read: Read) -> Piece:
    claimed = sum(array.nbytes for array in header.arrays if array is not None)
    if claimed > PIECE_MOST:
        raise Retryable(f"a piece of layer {header.layer} claims {claimed} bytes, and {PIECE_MOST} are the most")
    arrays = [array and _numbers(array, await read(array.nbytes)) for array in header.arrays]
    state = _layer_state(header, arrays)
    return Piece(header.layer, state, header.start if isinstance(state, AttentionState) else 0)


def _numbers(array: _Array, data: bytes) -> Numbers:
    try:
        return Numbers(array.dtype, np.frombuffer(data, RAW[array.dtype]).reshape(array.shape))
    except ValueError as error:  # of no numbers, along axes that are too long together
        raise Retryable(f"the stream is not one of a state: an array of {array.shape}") from error


def _layer_state(header: _PieceHeader, arrays: Sequence[Numbers | None]) -> LayerState:
    if header.type == "arrays":
        return ArraysState(tuple(arrays))
    present = [array for array in arrays if array is not None and array.shape]
    if len(present) != 2 or len(arrays) != 2:
        raise Retryable(f"layer {header.layer} came with {len(arrays)} arrays, and keys and values are 2")
    keys, values = present
    if header.type == "window":
        return WindowState(keys, values, header.start, header.size)
    return AttentionState(keys, values)


def _short(error: ValidationError) -> str:
    return "; ".join(found["msg"] for found in error.errors(include_url=False, include_input=False)[:3])
