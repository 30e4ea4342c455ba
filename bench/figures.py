"""How figures are printed."""

import statistics
from collections.abc import Sequence


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
