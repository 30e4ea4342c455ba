"""`exo log compact`: makes a long log smaller."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from exo.cli.log.move import no_master
from exo.cli.log.options import HomeOption, JsonOption, log_file, moment, opened, progress, run
from exo.log.migrate import check
from exo.log.moving.archive import OnProgress
from exo.log.moving.compacting import Compaction, compact


def compact_log(
    older_than: Annotated[str, typer.Option(help="Drop only what was over that long ago, such as 30d.")] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be dropped, and drop nothing.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Drop what old events say of requests that are over, and of commands that were refused.

    Each event keeps its place, time and digest, so the chain still proves every one of them, and State stays as it is;
    so do the figures of `exo usage`. The node must be stopped.
    """
    before = moment(older_than, "--older-than")
    if not isinstance(before, datetime):
        raise typer.BadParameter("expected is how long ago, such as 30d", param_hint="--older-than")
    path = log_file(home)
    check(path)
    with progress() as on_progress:
        if dry_run:
            found = run(_compact(path, before, on_progress, dry_run=True))
        else:
            with no_master(path):
                found = run(_compact(path, before, on_progress))
    typer.echo(json.dumps(asdict(found)) if as_json else _summary(found, dry_run=dry_run))


async def _compact(path: Path, before: datetime, on_progress: OnProgress, *, dry_run: bool = False) -> Compaction:
    async with opened(path) as store:
        return await compact(store, before.timestamp(), dry_run=dry_run, on_progress=on_progress)


def _summary(found: Compaction, *, dry_run: bool) -> str:
    what = (
        f"{found.events} events up to position {found.upto}: {found.generations} generations, "
        f"{found.rejections} refused commands; {found.content_bytes / 1e6:.1f} MB of content"
    )
    if dry_run:
        return f"would compact {what}"
    return f"compacted {what}; the files are {found.freed_bytes / 1e6:.1f} MB smaller"
