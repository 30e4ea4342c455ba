"""What an exported log looks like: JSON lines, a header before the events and a footer after them.

The file shows by itself whether it is whole: the footer says how many events there are, which chain and which State
they lead to, and the digest of every line before it. An event keeps its row as it is stored, its body as the very text
that its chain was built on.
"""

import json
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from exo.domain.base import Frozen
from exo.errors import Rejected
from exo.log.codec import StoredEvent
from exo.log.projection import GenerationRow

FORMAT_VERSION = 1
"""Of the file. An event has a version of its own."""

LINE_MOST = 2**28
"""Bytes of a line; an event with the longest prompt has a hundredth of it. What claims more is no log."""

OnProgress = Callable[[int, int], None]
"""Gets the position reached and the last one."""

_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Header(Frozen):
    """The first line."""

    format: Literal["exo-log"] = "exo-log"
    format_version: int = FORMAT_VERSION
    exo: str
    """The version that wrote the file."""
    count: int
    """Events that follow. The footer says how many did."""
    first: int
    """Position of the first of them."""
    chain_before: _Digest
    """The chain that the first of them is built on."""


class Footer(Frozen):
    """The last line."""

    count: int
    position: int
    """Of the last event; 0 in an empty log."""
    chain: _Digest
    """Of the last event."""
    state_digest: _Digest
    """Of the State after the last event."""
    state_schema: _Digest
    """What State looked like to the version that wrote the file: under another schema the digest says nothing."""
    sha256: _Digest
    """Of all lines before this one, with their line ends."""


class BadArchive(Rejected):
    """A file that is no whole log. Names the line, and the position where the line was to be an event."""

    def __init__(self, line: int, why: str, position: int | None = None) -> None:
        where = f"line {line}" if position is None else f"line {line} (position {position})"
        super().__init__(f"{where}: {why}")
        self.line = line
        self.position = position


_header = TypeAdapter(Header)
_footer = TypeAdapter(Footer)
_row = TypeAdapter(StoredEvent)
_generation = TypeAdapter(GenerationRow)


def event_line(row: StoredEvent) -> bytes:
    """The line of an event, its end included."""
    return _line(row._asdict())


def generation_line(row: GenerationRow) -> bytes:
    """The line of a generation whose events were compacted: what its row in the table says is all that is left."""
    return _line({"generation": row._asdict()})


def header_line(header: Header) -> bytes:
    """The first line."""
    return _line(header.model_dump())


def footer_line(footer: Footer) -> bytes:
    """The last line."""
    return _line({"footer": footer.model_dump()})


def read_header(line: bytes) -> Header:
    """What the first line says. Raises BadArchive where it is none, or of a newer format."""
    try:
        header = _header.validate_json(line)
    except ValidationError as error:
        raise BadArchive(1, "this is no exported log: its first line is not a header") from error
    if header.format_version != FORMAT_VERSION:
        raise BadArchive(1, f"the file has the format {header.format_version}: upgrade exo")
    return header


def read_line(line: bytes, number: int, position: int) -> StoredEvent | GenerationRow | Footer:
    """What a line after the first says. Raises BadArchive, with its `number` and the `position` that is next."""
    if not line.endswith(b"\n"):
        raise BadArchive(number, "the file was cut off here: export it again", position)
    try:
        if line.startswith(b'{"footer":'):
            return _footer.validate_json(line.removeprefix(b'{"footer":').rstrip()[:-1], strict=True)
        if line.startswith(b'{"generation":'):
            return _generation.validate_json(line.removeprefix(b'{"generation":').rstrip()[:-1], strict=True)
        return _row.validate_json(line, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        why = f"{place}: {first['msg']}" if place else first["msg"]
        raise BadArchive(number, f"this is no event: {why}", position) from error


def _line(data: dict[str, object]) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
