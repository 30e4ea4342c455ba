"""The prefix cache within what memory allows, the same on all ranks."""

from collections.abc import Callable

import mlx.core as mx

from exo.runner.engines.mlx.kept import Kept
from exo.runner.engines.mlx.layers import LayerCache, evaluate
from exo.runner.engines.mlx.prefix_cache import Found, PrefixCache, Tokens
from exo.runner.engines.ranks import Ranks

MEMORY_SHARE = 0.5
"""Of the memory that would be free without it, what the prefix cache may fill. The rest is for what runs."""


class Keeping:
    """Keeps states while there is memory to spare, and gives them up when there is not."""

    def __init__(self, ranks: Ranks, free_bytes: Callable[[], int]) -> None:
        """`free_bytes` tells what is free for new arrays on this machine."""
        self._ranks = ranks
        self._free_bytes = free_bytes
        self._cache = PrefixCache()

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return self._cache.nbytes

    def find(self, tokens: Tokens, most: int) -> Found:
        """The longest beginning of `tokens`, up to `most`, that is kept on all ranks."""
        found = self._cache.find(tokens, most)
        (length,) = self._ranks.agree([found.length])
        return Found(length, found.shared, found.entry if length else None)

    def restored(self, found: Found) -> list[LayerCache] | None:
        """The state that was found, to be written to at will; None where nothing was."""
        if found.entry is None:
            return None
        self._cache.touch(found.entry)
        return found.entry.kept.restored(found.length)

    def held(self, tokens: Tokens, most: int) -> int:
        """The length of what `find` finds. Asks no other ranks."""
        return self._cache.find(tokens, most).length

    def fits(self, nbytes: int) -> bool:
        """Whether a state of so many bytes is no more than the cache may fill, on all ranks."""
        (fits,) = self._ranks.agree([nbytes <= self._limit()])
        return bool(fits)

    def put(self, tokens: Tokens, kept: Kept) -> bool:
        """Keeps a state, if it fits, and whether it does. Others may have to go for it."""
        fits = self.fits(kept.nbytes)
        if fits:
            evaluate(kept.layers)
            self._cache.put(tokens, kept)
            self.shrink()
        return fits

    def shrink(self) -> None:
        """Gives up what is over the limit, which falls when other programs take memory, and lets them have it."""
        (negated,) = self._ranks.agree([-self._cache.entries_over(self._limit())])
        if negated:
            self._cache.evict(-negated)
            mx.clear_cache()

    def make_room(self, shortage: int) -> bool:
        """Gives up enough for `shortage` bytes more to be free. False, and nothing is given up, where it cannot."""
        held = self.nbytes
        fits, negated = self._ranks.agree([shortage <= held, -self._cache.entries_over(max(0, held - shortage))])
        if fits:
            self._cache.evict(-negated)
        return bool(fits)

    def clear(self) -> None:
        """Gives up all."""
        self._cache = PrefixCache()

    def _limit(self) -> int:
        """Bytes that the cache may fill now."""
        return int(MEMORY_SHARE * max(0, self._free_bytes() + self._cache.nbytes))
