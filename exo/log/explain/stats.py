"""How much a log holds: events by type and over time, room on the disk, gaps in time, masters, snapshots."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nlargest
from pathlib import Path

from sqlalchemy import Float, Integer, LargeBinary, and_, cast, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection
from typing_extensions import TypedDict

from exo.domain.messages.events import MasterElected, Recorded
from exo.log import codec
from exo.log import tables as t
from exo.log.codec import StoredEvent
from exo.log.explain.searching import WINDOW, OnProgress, no_progress
from exo.log.reading import LogReader

HOUR = 3600
GAPS_KEPT = 5
HOURS_KEPT = 5


class TypeTold(TypedDict):
    """The events of one type."""

    events: int
    bytes: int


HourTold = TypedDict("HourTold", {"from": float, "events": int})
"""An hour, and the events in it."""


class RateTold(TypedDict):
    """Events over time: the busiest hours, and each day that had any, by the local calendar."""

    per_hour: float
    busiest_hours: list[HourTold]
    days: dict[str, int]


class DiskTold(TypedDict):
    """Room on the disk."""

    file_bytes: int
    wal_bytes: int
    data_bytes: int
    bytes_per_event: float


class GapTold(TypedDict):
    """A Gap as plain data."""

    seconds: float
    since: float
    before: int


class LeadTold(TypedDict):
    """A Lead as plain data."""

    position: int
    at: float
    epoch: int
    node_id: str


class SnapshotTold(TypedDict):
    """A snapshot of State, and its size."""

    position: int
    bytes: int


class StatsTold(TypedDict):
    """Stats as plain data."""

    position: int
    events: int
    first: float | None
    last: float | None
    types: dict[str, TypeTold]
    rate: RateTold
    disk: DiskTold
    gaps: list[GapTold]
    masters: list[LeadTold]
    snapshots: list[SnapshotTold]


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """A time in which nothing was recorded."""

    seconds: float
    before: int
    """The position of the event that ended it."""
    since: float
    """When it began, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Lead:
    """One master's being elected."""

    position: int
    at: float
    epoch: int
    node_id: str


@dataclass(slots=True)
class Stats:
    """What a log holds up to a position. Sizes are in bytes, times in seconds since the epoch."""

    position: int
    file_bytes: int
    wal_bytes: int
    """Of the file beside it, which is written over and over: what it holds is mostly in the file itself already. NATS'
    own files are not counted."""
    data_bytes: int = 0
    """What the file takes once all of the WAL is in it."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Events of each type."""
    body_bytes: Counter[str] = field(default_factory=Counter[str])
    """Of their bodies, by type."""
    hours: Counter[int] = field(default_factory=Counter[int])
    """Events in each hour, by the hours since the epoch."""
    first: float | None = None
    last: float | None = None
    gaps: list[Gap] = field(default_factory=list[Gap])
    """The longest ones, the longest first."""
    leads: list[Lead] = field(default_factory=list[Lead])
    """Every election, oldest first."""
    snapshots: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Each one's position and size."""

    @property
    def events(self) -> int:
        """How many there are."""
        return self.counts.total()

    @property
    def bytes_per_event(self) -> float:
        """Indexes and projections included."""
        return self.data_bytes / self.events if self.events else 0.0

    @property
    def per_hour(self) -> float:
        """Events, on average over the whole span, however short; 0 where that is a moment."""
        span = 0.0 if self.first is None or self.last is None else self.last - self.first
        return self.events * HOUR / span if span > 0 else 0.0

    def days(self) -> dict[str, int]:
        """Events on each day that had any, by the local calendar."""
        found: Counter[str] = Counter()
        for hour, count in sorted(self.hours.items()):
            found[datetime.fromtimestamp(hour * HOUR).date().isoformat()] += count
        return dict(found)

    def busiest_hours(self) -> list[tuple[float, int]]:
        """The hours with the most events: when each began, and how many there were."""
        return [(float(hour * HOUR), count) for hour, count in self.hours.most_common(HOURS_KEPT)]

    def plain(self) -> StatsTold:
        """The same as plain data, for JSON."""
        return {
            "position": self.position,
            "events": self.events,
            "first": self.first,
            "last": self.last,
            "types": {
                name: {"events": count, "bytes": self.body_bytes[name]} for name, count in self.counts.most_common()
            },
            "rate": {
                "per_hour": self.per_hour,
                "busiest_hours": [{"from": begin, "events": count} for begin, count in self.busiest_hours()],
                "days": self.days(),
            },
            "disk": {
                "file_bytes": self.file_bytes,
                "wal_bytes": self.wal_bytes,
                "data_bytes": self.data_bytes,
                "bytes_per_event": self.bytes_per_event,
            },
            "gaps": [{"seconds": gap.seconds, "since": gap.since, "before": gap.before} for gap in self.gaps],
            "masters": [
                {"position": one.position, "at": one.at, "epoch": one.epoch, "node_id": one.node_id}
                for one in self.leads
            ],
            "snapshots": [{"position": position, "bytes": size} for position, size in self.snapshots],
        }


async def collect(reader: LogReader, on_progress: OnProgress = no_progress) -> Stats:
    """The figures up to the log's last event of now. `on_progress` gets the position reached and the last one.

    Raises Fatal where the file cannot be read.
    """
    upto = await reader.refresh()
    wal = reader.path.with_name(f"{reader.path.name}-wal")
    async with reader.connect() as connection:
        stats = Stats(upto, _size(reader.path), _size(wal), await _data(connection))
    stats.snapshots = [(row.position, len(row.state.encode())) for row in await reader.snapshots()]
    for begin in range(0, upto, WINDOW):
        end = min(begin + WINDOW, upto)
        async with reader.connect() as connection:
            await _count(connection, stats, begin, end)
            await _find_gaps(connection, stats, begin, end)
            await _find_masters(connection, stats, begin, end)
        on_progress(end, upto)
    return stats


async def _count(connection: AsyncConnection, stats: Stats, after: int, upto: int) -> None:
    events = t.events.c
    inside = and_(events.position > after, events.position <= upto)
    size = func.sum(func.length(cast(events.body, LargeBinary)))
    hour = cast(events.recorded_at / HOUR, Integer)
    by_type = select(events.type, func.count(), size).where(inside).group_by(events.type)
    for name, count, length in await connection.execute(by_type):
        stats.counts[name] += count
        stats.body_bytes[name] += length
    by_hour = select(hour, func.count(), func.min(events.recorded_at), func.max(events.recorded_at))
    for begin, count, first, last in await connection.execute(by_hour.where(inside).group_by(hour)):
        stats.hours[begin] += count
        stats.first = first if stats.first is None else min(stats.first, first)
        stats.last = last if stats.last is None else max(stats.last, last)


async def _find_gaps(connection: AsyncConnection, stats: Stats, after: int, upto: int) -> None:
    events = t.events.c
    # From the last event before the window on, so that no gap between two windows is missed.
    inside = and_(events.position >= after, events.position <= upto)
    since = func.lag(events.recorded_at, type_=Float).over(order_by=events.position)
    pairs = select(events.position, events.recorded_at.label("at"), since.label("since")).where(inside).subquery()
    gap = pairs.c.at - pairs.c.since
    query = select(gap, pairs.c.position, pairs.c.since).where(gap > 0).order_by(gap.desc()).limit(GAPS_KEPT)
    found = [Gap(seconds, position, begin) for seconds, position, begin in await connection.execute(query)]
    stats.gaps = nlargest(GAPS_KEPT, [*stats.gaps, *found])


async def _find_masters(connection: AsyncConnection, stats: Stats, after: int, upto: int) -> None:
    events = t.events.c
    inside = and_(events.position > after, events.position <= upto, events.type == "MasterElected")
    rows = await connection.execute(select(t.events).where(inside).order_by(events.position))
    stats.leads += [
        _lead(recorded, recorded.entry.event)
        for recorded in codec.decode([StoredEvent._make(row) for row in rows])
        if isinstance(recorded.entry.event, MasterElected)
    ]


def _lead(recorded: Recorded, event: MasterElected) -> Lead:
    return Lead(recorded.position, recorded.entry.recorded_at, event.epoch, event.node_id)


async def _data(connection: AsyncConnection) -> int:
    pages, size = [
        (await connection.execute(text(f"PRAGMA {name}"))).scalar_one() for name in ("page_count", "page_size")
    ]
    return pages * size


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
