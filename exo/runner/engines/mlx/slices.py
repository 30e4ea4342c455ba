"""How much of the waiting prompts is computed in one step, chosen from the measured speed. Pure: no clock, no MLX.

Amounts are in units: a token counts one, and every pass through the model PASS_TOKENS more, since each reads all
weights however few tokens it computes. Without that price the speed of small slices would look like that of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BUSY_STALL = 0.25
"""Seconds that a slice may hold up requests that decode: text that pauses for a quarter of a second still flows."""
IDLE_STALL = 1.0
"""Seconds of a slice while nothing decodes. Cancellations and new requests wait for its end, nobody else does."""
BURST_STALL = 2.0
"""The same where many prompts came at once: they are to decode together, not one more with each step."""
PASS_TOKENS = 16
"""What a pass costs beside its tokens, in tokens. Measured on two CPU cores (135 M parameters, float32): 16 tokens take
0.13 s and 315 take 1.2 s, so 20."""
LEAST = 16
MOST = 2048
"""Bounds of a slice, in tokens. Below, a pass is mostly its own price; above, none gets quicker."""
FIRST = 64
"""Tokens of the first slice, before anything was measured."""
NEWEST_SHARE = 0.5
"""Of the newest measurement in the mean; contexts grow and machines get busy within a few slices."""


def stall(decoding: int, waiting: int, short: int) -> float:
    """Seconds that a slice may take while so many requests decode and so many prompts wait, `short` of them for less
    than IDLE_STALL. It pays to have those decode soon that can: a step of one request takes about as long as one of
    eight."""
    if decoding == 0:
        return min(BURST_STALL, max(IDLE_STALL, BUSY_STALL * waiting))
    return min(IDLE_STALL, BUSY_STALL * max(1.0, short, waiting / decoding))


@dataclass(slots=True)
class SlicePace:
    """The size of slices that keeps to a time. On two CPU cores (135 M parameters, float32) slices of 32, 64, 128 and
    256 tokens gave 141, 173, 188 and 189 tokens a second, so that a quarter of a second costs little speed."""

    least: int = LEAST
    most: int = MOST
    _seconds_per_unit: float | None = None

    def budget(self, decoding: int, lefts: Sequence[int]) -> int:
        """Units of the next slice while so many requests decode, and so many tokens are left of each waiting prompt."""
        tokens = self._wanted(decoding, lefts) - PASS_TOKENS
        return PASS_TOKENS + min(self.most, max(self.least, tokens))

    def _wanted(self, decoding: int, lefts: Sequence[int]) -> int:
        unit = self._seconds_per_unit
        if unit is None:
            return PASS_TOKENS + FIRST
        short = sum(PASS_TOKENS + left <= IDLE_STALL / unit for left in lefts)
        return int(stall(decoding, len(lefts), short) / unit)

    def took(self, passes: int, tokens: int, seconds: float) -> None:
        """Takes note of what so many passes with so many tokens in all took."""
        measured = seconds / (PASS_TOKENS * passes + tokens)
        before = measured if self._seconds_per_unit is None else self._seconds_per_unit
        self._seconds_per_unit = max(1e-9, before + NEWEST_SHARE * (measured - before))
