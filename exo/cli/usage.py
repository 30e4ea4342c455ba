"""`exo usage`: who used what, from this node's log."""

import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from exo.cli.log.options import HomeOption, JsonOption, log_file, moment, run
from exo.log.explain.usage import Usage, read_usage, total


class By(StrEnum):
    """What usage is summed by."""

    model = "model"
    key = "key"
    day = "day"


def usage(
    by: Annotated[By, typer.Option("--by", help="One line for each of these.")] = By.model,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Only what ended since a time such as 2026-11-01 (local), or so long ago, such as 30d.",
            show_default=False,
        ),
    ] = None,
    utc: Annotated[bool, typer.Option("--utc", help="Days of UTC instead of the local time zone.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Show requests, tokens and seconds by model, key or day, with their totals."""
    when = moment(since, "--since")
    if isinstance(when, int):
        raise typer.BadParameter("expected is a time, or how long ago, such as 30d", param_hint="--since")
    found = run(read_usage(log_file(home), by.value, since=_seconds(when), utc=utc))
    if as_json:
        typer.echo(json.dumps({by.value: [_named(by, one) for one in found], "total": total(found).figures()}))
        return
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a pipe has no edge to cut names at
    console.print(_table(by, found))


def _seconds(when: datetime | None) -> float | None:
    return None if when is None else when.timestamp()


def _named(by: By, one: Usage) -> dict[str, object]:
    return {by.value: one.group, **one.figures()}


def _table(by: By, found: list[Usage]) -> Table:
    table = Table(by.value, box=None)
    for title in ("requests", "failed", "prompt tokens", "cached", "completion tokens", "prefill", "decode"):
        table.add_column(title, justify="right")
    for one in found:
        table.add_row(*_cells(one, one.group))
    table.add_section()
    table.add_row(*_cells(total(found), "total"), style="bold")
    return table


def _cells(one: Usage, name: str) -> tuple[str, ...]:
    counts = (one.requests, one.failed, one.prompt_tokens, one.cached_tokens, one.completion_tokens)
    return (name, *(f"{count:,}" for count in counts), f"{one.prefill_s:,.1f} s", f"{one.decode_s:,.1f} s")
