"""`exo log stats`: how much a log holds, and when it came."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table

from exo.cli.log.options import HomeOption, JsonOption, log_file, opened, progress, run
from exo.cli.log.view import local_time
from exo.log.explain.searching import OnProgress
from exo.log.explain.stats import Stats, collect

_DAYS_SHOWN = 14
_MASTERS_SHOWN = 5


def show_stats(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Print how many events there are of what type and when, what room they take, and the longest gaps."""
    with progress(hidden=as_json) as looked:
        stats = run(_collected(log_file(home), looked))
    if as_json:
        typer.echo(json.dumps(stats.plain()))
    else:
        Console().print(view(stats))


async def _collected(path: Path, on_progress: OnProgress) -> Stats:
    async with opened(path) as store:
        return await collect(store, on_progress)


def view(stats: Stats) -> RenderableType:
    """Figures for people."""
    tables = [_types(stats), _days(stats), _gaps(stats), _masters(stats)]
    return Group("\n".join(_head(stats)), *(table for table in tables if table.row_count))


def _head(stats: Stats) -> Iterator[str]:
    yield f"{stats.events} events, the last at position {stats.position}"
    if stats.first is not None and stats.last is not None:
        span = timedelta(seconds=round(stats.last - stats.first))
        yield f"from {local_time(stats.first)} to {local_time(stats.last)}, {span} in all"
    disk = f"on disk {_size(stats.file_bytes)}, and {_size(stats.wal_bytes)} in the WAL"
    yield f"{disk}: {stats.bytes_per_event:.0f} bytes an event"
    busiest = "; ".join(f"{count} in the hour from {local_time(begin)}" for begin, count in stats.busiest_hours()[:1])
    yield f"{stats.per_hour:.1f} events an hour" + (f", at most {busiest}" if busiest else "")
    snapshots = ", ".join(f"{position} ({_size(size)})" for position, size in stats.snapshots)
    yield f"snapshots at {snapshots}" if snapshots else "no snapshot"


def _types(stats: Stats) -> Table:
    table = _table("Events by type", "type", "events", "share", "bytes", "bytes each")
    for name, count in stats.counts.most_common():
        size = stats.body_bytes[name]
        table.add_row(name, str(count), f"{100 * count / stats.events:.1f} %", _size(size), f"{size / count:.0f}")
    return table


def _days(stats: Stats) -> Table:
    table = _table(f"Events by day, the last {_DAYS_SHOWN} that had any", "day", "events")
    for day, count in list(stats.days().items())[-_DAYS_SHOWN:]:
        table.add_row(day, str(count))
    return table


def _gaps(stats: Stats) -> Table:
    table = _table("Longest times without an event", "for", "since", "ended by position")
    for gap in stats.gaps:
        long = str(timedelta(seconds=round(gap.seconds))) if gap.seconds >= 60 else f"{gap.seconds:.2f} s"
        table.add_row(long, local_time(gap.since), str(gap.before))
    return table


def _masters(stats: Stats) -> Table:
    shown = min(_MASTERS_SHOWN, len(stats.leads))
    title = f"Masters, the last {shown} of {len(stats.leads)} elections"
    table = _table(title, "epoch", "node", "position", "since")
    for one in stats.leads[-_MASTERS_SHOWN:]:
        table.add_row(str(one.epoch), one.node_id, str(one.position), local_time(one.at))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 10**5 else f"{count / 1e3:.1f} kB"
