"""The memory guard: what requests will need against what is free."""

from collections.abc import Callable, Collection

from exo.runner.engines.admission import check_fitting, completion_limit, reserved_tokens
from exo.runner.engines.mlx.cache_bytes import CacheBytes
from exo.runner.engines.ranks import Ranks

HEADROOM = 1.1
"""Needed bytes times this must fit: arrays are copied layer by layer when a request joins the others or grows."""


class Room:
    """Counts in bytes on each rank, and in tokens where ranks must agree."""

    def __init__(self, cost: CacheBytes, ranks: Ranks, free_bytes: Callable[[], int]) -> None:
        """`cost` is of this rank's layers, `free_bytes` tells what is free for new arrays on this machine."""
        self._cost = cost
        self._ranks = ranks
        self._free_bytes = free_bytes

    def accept(self, prompt_tokens: int, max_tokens: int | None, context: int, held: int) -> tuple[int, int]:
        """How many tokens a request may generate, and for how many, prompt included, to set memory aside.

        `held` are the bytes that come back when all others have ended. Raises Rejected: `empty_prompt`, and
        `context_length_exceeded` where it is more than the context, or more than memory could hold of it alone.
        """
        most = completion_limit(prompt_tokens, max_tokens, context)
        fitting = self.fitting(context, held)
        check_fitting(prompt_tokens, max_tokens, fitting)
        return most, min(fitting, reserved_tokens(prompt_tokens, max_tokens, most))

    def fitting(self, most: int, held: int) -> int:
        """The most tokens, up to `most`, that memory holds of one request alone. `held` as in `accept`."""
        (fitting,) = self._ranks.agree([self._cost.tokens(int((self._free_bytes() + held) / HEADROOM), most)])
        return fitting

    def shortage(self, reserved: Collection[int], beside: Collection[int], held: int) -> int:
        """Bytes that are not free of what requests of so many `reserved` tokens need, and others of so many `beside`
        them, more than the `held` they have.

        Requests that decode together are padded to the longest of them; those beside them are not.
        """
        needed = len(reserved) * self._cost.at(max(reserved, default=0)) + sum(map(self._cost.at, beside))
        return int(HEADROOM * needed) - held - self._free_bytes()
