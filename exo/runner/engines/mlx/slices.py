"""How many tokens of a prompt are computed in one step, chosen from the measured speed. Pure: no clock, no MLX."""

from dataclasses import dataclass

BUSY_STALL = 0.25
"""Seconds that a slice may hold up requests that decode: text that pauses for a quarter of a second still flows."""
IDLE_STALL = 1.0
"""Seconds of a slice while nothing decodes. Cancellations and new requests wait for its end, nobody else does."""
BURST_STALL = 2.0
"""The same where many prompts came at once: they are to decode together, not one more with each step."""
LEAST = 16
MOST = 2048
"""Bounds of a slice, in tokens. Below, a pass costs about as much as one for 16; above, none gets quicker."""
FIRST = 64
"""Tokens of the first slice, before anything was measured."""
NEWEST_SHARE = 0.5
"""Of the newest measurement in the mean; contexts grow and machines get busy within a few slices."""


def stall(decoding: int, waiting: int) -> float:
    """Seconds that a slice may take. Where more wait than decode it may be longer: a step of one request takes about as
    long as one of eight, so that it pays to have them decode together soon."""
    if decoding == 0:
        return min(BURST_STALL, max(IDLE_STALL, BUSY_STALL * waiting))
    return min(IDLE_STALL, BUSY_STALL * max(1.0, waiting / decoding))


@dataclass(slots=True)
class SlicePace:
    """The size of slices that keeps to a time. On two CPU cores (135 M parameters, float32) slices of 32, 64, 128 and
    256 tokens gave 141, 173, 188 and 189 tokens a second, so that a quarter of a second costs little speed."""

    least: int = LEAST
    most: int = MOST
    _seconds_per_token: float | None = None

    def tokens(self, decoding: int, waiting: int) -> int:
        """Tokens of the next slice while so many requests decode and so many prompts wait; a multiple of 16."""
        speed = self._seconds_per_token
        wanted = FIRST if speed is None else int(stall(decoding, waiting) / speed)
        return min(self.most, max(self.least, wanted - wanted % LEAST))

    def took(self, tokens: int, seconds: float) -> None:
        """Takes note of what a slice took. A short one counts as the least one, which takes as long."""
        measured = seconds / max(tokens, LEAST)
        before = measured if self._seconds_per_token is None else self._seconds_per_token
        self._seconds_per_token = max(1e-9, before + NEWEST_SHARE * (measured - before))
