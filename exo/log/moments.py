"""Moments of the log as people write them: a position, a time, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

from exo.errors import Rejected
from exo.log.reading import LogReader

Moment = int | datetime
"""A position, or a time with its zone."""

EXPECTED = "a position, a time such as 2026-03-01T03:12 (local), or how long ago, such as 10m or 2h"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(r"(?:\d+[smhdw])+")
_PART = re.compile(r"(\d+)([smhdw])")
_POSITION = re.compile(r"[0-9]{1,18}")


def parse_moment(text: str, now: datetime) -> Moment:
    """The moment that `text` names. Raises ValueError, saying what is expected, where it names none.

    `10m` and `1h30m` are counted back from `now`; a time without a zone is local.
    """
    if _POSITION.fullmatch(text):
        return int(text)
    try:
        if _AGO.fullmatch(text):
            return now.astimezone(UTC) - timedelta(**_amounts(text))
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"'{text}' is no moment: expected is {EXPECTED}") from error


async def position_of(reader: LogReader, moment: Moment | None) -> int:
    """The position of the last event at or before a moment; None: of the last there is. 0: before the first.

    Raises Rejected where the log does not reach that position.
    """
    if moment is None:
        return reader.position
    if isinstance(moment, datetime):
        return await reader.position_at(moment.timestamp())
    if moment > reader.position:
        raise Rejected(f"there is no event at position {moment}; the log ends at {reader.position}", code="not_found")
    return moment


async def position_before(reader: LogReader, moment: Moment) -> int:
    """The position after which the events come that were recorded at a moment or later."""
    if isinstance(moment, datetime):
        # A microsecond is the finest that a time can be written with.
        return await reader.position_at((moment - timedelta(microseconds=1)).timestamp())
    return max(0, moment - 1)


def _amounts(text: str) -> dict[str, float]:
    amounts: dict[str, float] = {}
    for number, unit in _PART.findall(text):
        name = _UNITS[unit]
        amounts[name] = amounts.get(name, 0) + int(number)
    return amounts
