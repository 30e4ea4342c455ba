"""Figures: what was measured, in turn, and how it is printed."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """Tokens and the seconds that they took."""

    tokens: int
    seconds: float
    first: float | None = None
    """Mean seconds to the first token of each stream; None where it was not looked at."""

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def in_turn(measures: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each measured, round after round; the order moves by one each round, so that nobody is always first."""
    found: dict[str, list[T]] = {name: [] for name in measures}
    names = list(measures)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(measures[name]())
    return found


def spread(values: Sequence[float], form: str) -> str:
    """Median, and range in brackets."""
    return f"{statistics.median(values):{form}} [{min(values):{form}} to {max(values):{form}}]"


def percentiles(seconds: Sequence[float]) -> str:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {p50 * 1e3:5.2f} ms, p99 {p99 * 1e3:5.2f} ms"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs, round by round."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]
