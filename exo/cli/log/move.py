"""`exo log export` and `import`: a log as a file that any text tool reads."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from exo.cli.log.options import MOMENT, HomeOption, log_file, moment, opened, progress, run
from exo.errors import Rejected
from exo.log.migrate import check
from exo.log.moments import position_before, position_of
from exo.log.moving import archive_files
from exo.log.moving.archive import BadArchive, Footer
from exo.log.moving.exporting import export_log
from exo.log.moving.importing import import_log
from exo.models.lock import locked_if_free, named

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Its name; compressed if it ends in .zst. `-` is a pipe.")
]


def export_file(
    file: FileArgument,
    first: Annotated[
        str | None, typer.Option("--from", help=f"{MOMENT}.  [default: the first event]", show_default=False)
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help=f"{MOMENT}.  [default: now]", show_default=False)] = None,
    home: HomeOption = None,
) -> None:
    """Write the log as JSON lines, one for each event. Works while the node runs."""
    begin, end, path = moment(first, "--from"), moment(last, "--to"), log_file(home)
    check(path)
    with progress() as on_progress, archive_files.written(file) as target:

        async def work() -> Footer:
            async with opened(path) as store:
                after = 0 if begin is None else await position_before(store, begin)
                upto = await position_of(store, end)
                if after > upto or (after == upto and begin is not None):
                    raise Rejected(f"nothing lies between --from and --to; the log ends at {store.position}")
                return await export_log(store, target, first=after + 1, last=upto, on_progress=on_progress)

        footer = run(work())
    typer.echo(_summary(footer), err=True)


def import_file(file: FileArgument, home: HomeOption = None) -> None:
    """Make the log of a new home from an exported one: the same positions, chain and State.

    Nothing is there before the whole file was found right.
    """
    path = log_file(home)
    with no_master(path), progress() as on_progress, archive_files.read(file) as source:
        try:
            footer = import_log(source, path, on_progress)
        except BadArchive as error:
            raise Rejected(f"{file}, {error}") from error
    typer.echo(f"{_summary(footer)}\nthe log is {path}")


@contextmanager
def no_master(path: Path) -> Generator[None]:
    """Keeps a master from starting with the home of the log at `path`. Raises Rejected where one runs."""
    home = path.parent.parent
    file = home / "master.lock"
    with locked_if_free(file) as free:
        if not free:
            raise Rejected(f"a master runs with the home {home}{named(file)}: stop the node first")
        yield


def _summary(footer: Footer) -> str:
    return f"{footer.count} events up to position {footer.position}, chain {footer.chain}, State {footer.state_digest}"
