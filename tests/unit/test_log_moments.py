"""How people name moments of the log."""

from datetime import UTC, datetime, timedelta

import pytest

from exo.log.moments import parse_moment

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(("text", "position"), [("0", 0), ("42", 42), ("007", 7)])
def test_digits_are_a_position(text: str, position: int) -> None:
    assert parse_moment(text, NOW) == position


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("1h1h", timedelta(hours=2)),
    ],
)
def test_a_duration_is_counted_back_from_now(text: str, ago: timedelta) -> None:
    assert parse_moment(text, NOW) == NOW - ago


def test_a_time_has_its_own_zone_or_the_local_one() -> None:
    assert parse_moment("2026-03-01T03:12+02:00", NOW) == datetime(2026, 3, 1, 1, 12, tzinfo=UTC)
    assert parse_moment("2026-03-01T03:12", NOW) == datetime(2026, 3, 1, 3, 12).astimezone(UTC)
    assert parse_moment("2026-03-01", NOW) == datetime(2026, 3, 1).astimezone(UTC)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "-1", "1.5", "10 m", "m", "9" * 30, "9" * 30 + "w", "2026-13-01", "0001-01-01T00:00+14:00"],
)
def test_what_is_no_moment_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="a position, a time such as"):
        parse_moment(text, NOW)
