"""`exo log tail`: the last events, and those that come."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from exo.cli.log import view
from exo.cli.log.options import MOMENT, HomeOption, JsonOption, log_file, moment, opened, run
from exo.domain.messages.events import Recorded
from exo.errors import Rejected
from exo.log.codec import VERSIONS
from exo.log.explain.searching import Filter, find_entity, last_matching, matching
from exo.log.moments import Moment, position_before
from exo.log.store import LogStore

POLL_SECONDS = 0.25
"""Between two looks for new events; a reader of a file is told of nothing."""
COUNT = 20
"""Events that are printed where neither `-n` nor `--since` says otherwise."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call asks for. None: not given."""

    count: int | None
    event_type: str | None
    entity: str | None
    since: Moment | None
    follow: bool


def tail(
    count: Annotated[
        int | None,
        typer.Option("-n", "--lines", min=0, help=f"How many events.  [default: {COUNT}, or all since --since]"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new events as they come.")] = False,
    event_type: Annotated[
        str | None, typer.Option("--type", help="Only events of this type, such as NodeJoined.", show_default=False)
    ] = None,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity",
            help="Only events that name this node, instance, runner, generation, model, key, API or command; the "
            "beginning of an id will do.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help=f"Only events from there on. {MOMENT}.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Print the last events, oldest first."""

    if event_type is not None and event_type not in VERSIONS:
        raise Rejected(f"--type {event_type}: there is no such event; there are: {', '.join(sorted(VERSIONS))}")

    def show(recorded: Recorded) -> None:
        typer.echo(recorded.model_dump_json() if as_json else view.line(recorded))

    wanted = Wanted(count, event_type, entity, moment(since, "--since"), follow)
    run(_tail(log_file(home), wanted, show))


async def _tail(path: Path, wanted: Wanted, show: Callable[[Recorded], None]) -> None:
    async with opened(path) as store:
        chosen = await _filter(store, wanted)
        position = store.position
        await _show_past(store, wanted, chosen, show)
        while wanted.follow:
            for recorded in await store.read(position):
                position = recorded.position
                if chosen.takes(recorded):
                    show(recorded)
            await asyncio.sleep(POLL_SECONDS)


async def _filter(store: LogStore, wanted: Wanted) -> Filter:
    types = frozenset([wanted.event_type] if wanted.event_type else [])
    if wanted.entity is None:
        return Filter(types=types)
    return Filter(frozenset([await find_entity(store, wanted.entity, store.position)]), types)


async def _show_past(store: LogStore, wanted: Wanted, chosen: Filter, show: Callable[[Recorded], None]) -> None:
    after = 0 if wanted.since is None else await position_before(store, wanted.since)
    if wanted.count is None and wanted.since is not None:
        async for recorded in matching(store, chosen, after, store.position):
            show(recorded)
        return
    count = COUNT if wanted.count is None else wanted.count
    for recorded in await last_matching(store, chosen, count, after, store.position):
        show(recorded)
