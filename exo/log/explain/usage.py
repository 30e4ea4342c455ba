"""Who used what: sums over the table `generations`, by model, by key or by day."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from sqlalchemy import ColumnElement, Integer, cast, func, select

from exo.log import migrate
from exo.log import tables as t
from exo.log.reading import LogReader

By = Literal["model", "key", "day"]


class Usage(NamedTuple):
    """The generations of one group that ended, however they did."""

    group: str
    """A model's id, a key's name, or a day as in 2026-11-30; empty for the total."""
    requests: int
    failed: int
    """Of them, those that ended in an error. One that its client gave up has not failed."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Of the prompts' tokens, those that were not computed anew."""
    prefill_s: float
    decode_s: float

    def figures(self) -> dict[str, int | float]:
        """All but the group, by name; seconds in milliseconds, since further digits of a sum mean nothing."""
        fields = self._asdict()
        del fields["group"]
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}


async def read_usage(path: Path, by: By, *, since: float | None = None, utc: bool = False) -> list[Usage]:
    """The usage from the log at `path`, by group in order, of what ended at `since`, seconds since the epoch, or later.

    Days are those of this machine's time zone, or of UTC. What still runs is not in it: then a day that is over keeps
    its figures. Raises Fatal where there is no log, or it is not of this version.
    """
    await asyncio.to_thread(migrate.check, path)
    ended = t.generations.c.ended_at
    group = _group(by, utc=utc)
    query = select(group, *_sums()).where(ended.is_not(None)).group_by(group).order_by(group)
    if since is not None:
        query = query.where(ended >= since)
    reader = LogReader(path)
    try:
        async with reader.connect() as connection:
            return [Usage._make(row) for row in await connection.execute(query)]
    finally:
        await reader.close()


def total(usages: Iterable[Usage]) -> Usage:
    """The sum over all groups."""
    found = list(usages)
    return Usage(
        group="",
        requests=sum(one.requests for one in found),
        failed=sum(one.failed for one in found),
        prompt_tokens=sum(one.prompt_tokens for one in found),
        completion_tokens=sum(one.completion_tokens for one in found),
        cached_tokens=sum(one.cached_tokens for one in found),
        prefill_s=sum((one.prefill_s for one in found), 0.0),
        decode_s=sum((one.decode_s for one in found), 0.0),
    )


def _group(by: By, *, utc: bool) -> ColumnElement[str]:
    match by:
        case "model":
            return t.generations.c.model_id
        case "key":
            return t.generations.c.key
        case "day":
            zone = () if utc else ("localtime",)
            return func.strftime("%Y-%m-%d", t.generations.c.ended_at, "unixepoch", *zone)


def _sums() -> list[ColumnElement[int] | ColumnElement[float]]:
    columns = t.generations.c
    return [
        func.count(),
        func.count().filter(columns.finish_reason == "error"),
        _tokens(columns.prompt_tokens),
        _tokens(columns.completion_tokens),
        _tokens(columns.cached_tokens),
        func.total(columns.prefill_s),
        func.total(columns.decode_s),
    ]


def _tokens(column: ColumnElement[int]) -> ColumnElement[int]:
    # `sum` fails where the sum is no 64-bit integer, and one nonsensical report is enough for that.
    return cast(func.total(column), Integer)
