"""`exo log`: the cluster's history. Reads the file of a running master as well as that of a stopped one."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from exo.cli.log import compact, diff, move, stats, tail, view, what_if, why
from exo.cli.log.options import MOMENT, HomeOption, JsonOption, log_file, moment, opened, run
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Rejected
from exo.log.migrate import check_exists, migrate
from exo.log.moments import Moment, position_of
from exo.log.replay import load_state
from exo.log.verify import Verification, verify

app = typer.Typer(
    name="log",
    add_completion=False,
    help="The cluster's history: every event that it recorded, and the State that they led to.",
    no_args_is_help=True,
)


app.command("tail")(tail.tail)


@app.command("show")
def show_event(
    position: Annotated[int, typer.Argument(help="The event's number, as `exo log tail` prints it first.", min=1)],
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Print one event in full, with what caused it."""
    recorded, siblings = run(_event(log_file(home), position))
    typer.echo(recorded.model_dump_json() if as_json else view.page(recorded, siblings))


@app.command()
def replay(
    to: Annotated[str | None, typer.Option(help=f"{MOMENT}.  [default: now]", show_default=False)] = None,
    with_placement: Annotated[
        bool, typer.Option("--with-placement", help="Instead: where today's placement would decide otherwise.")
    ] = False,
    first: Annotated[
        str | None,
        typer.Option("--from", help=f"With --with-placement: only since. {MOMENT}.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Print what the cluster was like at a moment of the past: its nodes, models and requests."""
    if with_placement:
        what_if.replay_placements(log_file(home), first, to, as_json=as_json)
        return
    if first is not None:
        raise typer.BadParameter("it goes with --with-placement only; State is that of one moment", param_hint="--from")
    state = run(_state(log_file(home), moment(to, "--to")))
    if as_json:
        typer.echo(state.model_dump_json())
    else:
        Console().print(view.state_tables(state))


@app.command("verify")
def verify_log(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Check the whole log: that no event is missing or was changed, and that all else follows from the events.

    Ends with exit code 1 where something is wrong.
    """
    with Progress(console=Console(stderr=True), transient=True, disable=as_json) as progress:
        task = progress.add_task("events")
        found = run(_verified(log_file(home), lambda at, end: progress.update(task, completed=at, total=end)))
    typer.echo(json.dumps(view.verdict_data(found)) if as_json else view.verdict(found))
    if found.problems:
        raise typer.Exit(1)


@app.command("migrate")
def migrate_log(home: HomeOption = None) -> None:
    """Bring the log's tables up to date. A master does this by itself when it starts."""
    path = log_file(home)

    async def work() -> None:
        check_exists(path)
        await asyncio.to_thread(migrate, path)

    run(work())
    typer.echo(f"the event log {path} is up to date")


async def _event(path: Path, position: int) -> tuple[Recorded, list[Recorded]]:
    async with opened(path) as store:
        found = await store.read(position - 1, 1)
        if not found or found[0].position != position:
            raise Rejected(f"there is no event at position {position}; the log ends at {store.position}")
        cause = found[0].entry.cause_id
        return found[0], await store.caused_by(cause) if cause else []


async def _state(path: Path, moment: Moment | None) -> State:
    async with opened(path) as store:
        return await load_state(store, await position_of(store, moment))


async def _verified(path: Path, on_progress: Callable[[int, int], None]) -> Verification:
    async with opened(path) as store:
        return await verify(store, on_progress)


app.command("export")(move.export_file)
app.command("import")(move.import_file)
app.command("compact")(compact.compact_log)
app.command("diff")(diff.diff_log)
app.command("why")(why.why_entity)
app.command("stats")(stats.show_stats)
