"""States of prompts and conversations, for the next request that begins with the same tokens.

An entry is one sequence of tokens with its state. Tokens are compared as arrays: 100,000 in some 30 us, so that a walk
over all entries is cheaper than a tree of dicts with one node a token (mlx-lm's `PromptTrie`), and every common
beginning is found, not only whole entries. Bytes are counted by each rank for itself, but what is thrown away is a
number of entries, the least lately used first: ranks that agree on the number keep the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from exo.runner.engines.mlx.kept import Kept

Tokens = npt.NDArray[np.int64]

ENTRIES_MOST = 256
"""So that a walk over all stays below a few milliseconds."""


def as_tokens(tokens: Sequence[int]) -> Tokens:
    """The tokens as an array. Raises OverflowError for what is no token."""
    return np.array(tokens, dtype=np.int64)


def common_length(one: Tokens, other: Tokens) -> int:
    """How many tokens two sequences begin with in common."""
    shorter = min(len(one), len(other))
    differing = one[:shorter] != other[:shorter]
    first = int(differing.argmax()) if shorter else 0
    return first if shorter and differing[first] else shorter


@dataclass(slots=True, eq=False)
class Entry:
    """One sequence."""

    tokens: Tokens
    kept: Kept
    nbytes: int = field(default=0, init=False)
    """Bytes of `kept`, counted when the cache takes it: the sum over all its arrays is asked for often."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the cache has of a prompt."""

    length: int
    """Tokens whose state can be had."""
    shared: int
    """Tokens that some entry begins with too; where it is more, the state there was not kept."""
    entry: Entry | None = None


@dataclass(slots=True)
class PrefixCache:
    """Entries, the least lately used first."""

    entries: list[Entry] = field(default_factory=list[Entry])
    nbytes: int = field(default=0, init=False)
    """Bytes of all entries. Those that share arrays are counted each."""

    def find(self, tokens: Tokens, most: int) -> Found:
        """The longest beginning of `tokens`, up to `most`, that an entry has. Changes nothing."""
        best = Found(length=0, shared=0)
        shared = 0
        for entry in self.entries:
            common = min(most, common_length(entry.tokens, tokens))
            shared = max(shared, common)
            length = entry.kept.nearest(common)
            if length > best.length:
                best = Found(length, shared, entry)
        return Found(best.length, shared, best.entry)

    def touch(self, entry: Entry) -> None:
        """Makes it the last to be thrown away."""
        self.entries.remove(entry)
        self.entries.append(entry)

    def put(self, tokens: Tokens, kept: Kept) -> None:
        """Adds a sequence. One that it continues goes up in it, and so does one that continues it."""
        for entry in list(self.entries):
            common = common_length(entry.tokens, tokens)
            if common == len(tokens):
                self._remove(entry)
                entry.kept.take_over(kept)
                self._append(entry)
                return
            if common == len(entry.tokens):
                self._remove(entry)
                kept.take_over(entry.kept)
        self._append(Entry(tokens, kept))
        self.evict(len(self.entries) - ENTRIES_MOST)

    def entries_over(self, limit: int) -> int:
        """How many entries must go for the rest to take at most `limit` bytes."""
        left = self.nbytes
        for number, entry in enumerate(self.entries):
            if left <= limit:
                return number
            left -= entry.nbytes
        return len(self.entries)

    def evict(self, number: int) -> None:
        """Throws away so many, the least lately used first."""
        for entry in self.entries[: max(0, number)]:
            self._remove(entry)

    def _append(self, entry: Entry) -> None:
        entry.nbytes = entry.kept.nbytes
        self.nbytes += entry.nbytes
        self.entries.append(entry)

    def _remove(self, entry: Entry) -> None:
        self.nbytes -= entry.nbytes
        self.entries.remove(entry)
