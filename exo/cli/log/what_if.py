"""`exo log replay --with-placement`: where today's placement would decide otherwise than was decided."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

from exo.cli.log.options import moment, opened, progress, run
from exo.cli.log.view import local_time
from exo.domain.what_if import Choice, Reconsidered
from exo.log.explain.what_if import placements
from exo.log.moments import Moment, position_before, position_of
from exo.log.moving.archive import OnProgress


def replay_placements(path: Path, first: str | None, last: str | None, *, as_json: bool) -> None:
    """Print each placement between two moments that would be another one today, and how many were looked at."""
    begin, end = moment(first, "--from"), moment(last, "--to")
    with progress("placements") as on_progress:
        total, different = run(_replay(path, begin, end, on_progress, as_json=as_json))
    if as_json:
        typer.echo(json.dumps({"placements": total, "different": different}))
    else:
        typer.echo(f"{total} placements, {different or 'none'} would be decided otherwise")


async def _replay(
    path: Path, begin: Moment | None, end: Moment | None, on_progress: OnProgress, *, as_json: bool
) -> tuple[int, int]:
    total = different = 0
    async with opened(path) as store:
        after = 0 if begin is None else await position_before(store, begin)
        async for found in placements(store, after, await position_of(store, end), on_progress):
            total += 1
            if found.differs:
                different += 1
                typer.echo(json.dumps(asdict(found)) if as_json else _shown(found))
    return total, different


def _shown(found: Reconsidered) -> str:
    then, now = _where(found.then), _where(found.now)
    return "\n".join(
        [
            f"position {found.position}  {local_time(found.time)}  {found.model_id}",
            f"  then  {then}: {found.then.reason}",
            f"  now   {now}: {found.now.reason}",
        ]
    )


def _where(choice: Choice) -> str:
    if not choice.node_ids:
        return "refused"
    nodes = ", ".join(choice.node_ids)
    return f"on {nodes} with {choice.engine}, context {choice.context}, {choice.slots} slots"
