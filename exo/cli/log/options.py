"""What the commands of `exo log` share: options, the log's file, a bar of progress, and how a moment is named.

What a moment is in a log, `exo.log.moments.position_of` says.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress

from exo.log.moments import Moment, parse_moment
from exo.log.store import LogStore

T = TypeVar("T")

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="The node's home folder.  [default: from the settings]", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
MOMENT = "A position, a time such as 2026-03-01T03:12 (local), or how long ago, such as 10m or 2h"
"""What `moment` reads, for a command's help."""


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


def moment(text: str | None, option: str | None = None) -> Moment | None:
    """The moment that an option names; None: not given. Ends the program, naming the option, where it is none."""
    try:
        return None if text is None else parse_moment(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[LogStore, None]:
    """The log, for reading. Raises Fatal where there is none, or it is not of this version."""
    store = await LogStore.open(path, read_only=True)
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def progress(what: str = "events", *, hidden: bool = False) -> Generator[Callable[[int, int], None]]:
    """A bar on standard error, where that is a terminal; what it is told is a position and the last one."""
    # Standard output is left alone: what goes there may be the file itself.
    console = Console(stderr=True)
    disable = hidden or not console.is_terminal
    with Progress(console=console, transient=True, redirect_stdout=False, disable=disable) as bar:
        task = bar.add_task(what, total=None)
        yield lambda position, end: bar.update(task, completed=position, total=end)
