"""What the commands of `exo log` share: options, the log's file, and how a moment of the past is named."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from exo.errors import Rejected
from exo.log.store import LogStore

T = TypeVar("T")

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="The node's home folder.  [default: from the settings]", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def log_file(home: Path | None) -> Path:
    """Where the event log of a node lies. `home`: None takes it from the settings."""
    from exo.config import load_settings

    settings = load_settings() if home is None else load_settings(home=home)
    return settings.log_file


def run(work: Coroutine[None, None, T]) -> T:
    """What `work` gives. Ctrl-C ends the program with a shell's own code for it."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def moment(text: str | None) -> int | datetime | None:
    """A position or a time from the command line; None: not given."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is neither a position nor a time such as 2026-03-01T03:12") from error


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[LogStore, None]:
    """The log, for reading."""
    store = await LogStore.open(path, read_only=True)
    try:
        yield store
    finally:
        await store.close()


async def position_of(store: LogStore, when: int | datetime | None) -> int | None:
    """The position of a moment; None stays None. Raises Rejected where the log ends before it."""
    position = await store.position_at(when.timestamp()) if isinstance(when, datetime) else when
    if position is not None and position > store.position:
        raise Rejected(f"there is no event at position {position}; the log ends at {store.position}")
    return position
