"""The files that exported logs lie in: plain or compressed, or the standard streams for `-`."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from exo.errors import Rejected

STANDARD = "-"
"""The name of standard output and input."""
_MAGIC = b"\x28\xb5\x2f\xfd"
"""What every zstd file begins with."""


@contextmanager
def written(name: str) -> Generator[BinaryIO]:
    """A file to write to, compressed by zstd where its name ends in `.zst`.

    It has its name once the block has ended; where that raises, nothing is left and a file of before is untouched.
    Raises Rejected where it cannot be written.
    """
    if name == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    partial = path.with_name(f"{path.name}.partial")
    try:
        try:
            with partial.open("wb") as file:
                if path.suffix == ".zst":
                    with zstandard.ZstdCompressor(write_checksum=True).stream_writer(file, closefd=False) as compressed:
                        yield cast("BinaryIO", compressed)
                else:
                    yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise Rejected(f"{error.filename or name}: {error.strerror}") from error


@contextmanager
def read(name: str) -> Generator[BinaryIO]:
    """A file to read from, decompressed where zstd compressed it. Raises Rejected where it cannot be read."""
    if name == STANDARD:
        yield _decompressed(cast("BufferedReader[Any]", sys.stdin.buffer))
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115  closed below: errors of the block are not those of the file
    except OSError as error:
        raise Rejected(f"{name}: {error.strerror}") from error
    with file:
        yield _decompressed(file)


def _decompressed(file: "BufferedReader[Any]") -> BinaryIO:
    if not file.peek(len(_MAGIC)).startswith(_MAGIC):
        return file
    # Several compressed pieces in one file are one text, as for the zstd program.
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return BufferedReader(cast("RawIOBase", reader), 2**20)
