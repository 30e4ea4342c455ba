"""How soon and how evenly one generation's output comes."""

from collections.abc import Callable

Observe = Callable[[float], None]
"""Takes seconds."""


class Pace:
    """Told of each piece of output, so it does as little as can be: one observation, about a microsecond."""

    __slots__ = ("_at", "_gap", "_observe")

    def __init__(self, began: float, first: Observe, gap: Observe) -> None:
        """`first` observes the time from `began` to the first output, `gap` that from each output to the next."""
        self._at = began
        self._observe = first
        self._gap = gap

    def mark(self, now: float) -> None:
        """Output came. `now` is by the clock of `began`."""
        self._observe(now - self._at)
        self._at, self._observe = now, self._gap
