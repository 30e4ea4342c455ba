"""How much memory keys and values get, when they get more, and when they give it back. Counted in blocks."""

from exo.domain.limits import CONTEXT_TOKENS, SLOTS
from exo.errors import Fatal

BLOCK = 32
"""Tokens of a block: the least that vLLM's CPU attention takes, and any of its GPU ones does."""
FEWEST = 16
"""Blocks. There are never fewer, nor is a smaller step worth its while."""
START_SHARE = 0.05
"""Of the memory that is free once the weights are loaded."""
FREE_SHARE = 0.8
"""Of what is free, that may be taken at once; before the weights are loaded, the limit of all."""
FIXED_REQUESTS = 4
FIXED_SHARE = 0.5
"""Of a cache that cannot grow: others would never get the memory."""
HEADROOM = 512 << 20
"""Bytes that stay free for others."""
AHEAD = 256 << 20
"""Bytes that may be taken beyond what is needed now: it takes some tenths of a second to fill them with zeros."""
PREFIXES_KEPT = 300.0
"""Seconds without a request after which the beginnings that are kept for others go too."""


def limit(context: int, free: int, weights: int, block_bytes: int) -> int:
    """The most blocks there will ever be: for as many requests of the longest context as run side by side, or as
    memory allows. `free` bytes before the weights are loaded, which take `weights` of them.

    Raises Fatal where they leave next to nothing.
    """
    wanted = 1 + SLOTS * -(-context // BLOCK)  # vLLM keeps one for itself
    blocks = min(wanted, int((free - weights) * FREE_SHARE) // block_bytes)
    if blocks < FEWEST:
        raise Fatal(f"no memory for keys and values: {free} bytes are free, and the weights take {weights}")
    return blocks


def fixed(context: int, free: int, weights: int, block_bytes: int) -> int:
    """Blocks of a cache that cannot grow: for a few requests of the context that a placement reserves memory for, or
    one of the longest. Raises Fatal as `limit`."""
    wanted = 1 - (-max(context, FIXED_REQUESTS * CONTEXT_TOKENS) // BLOCK)
    return min(wanted, limit(context, int(free * FIXED_SHARE), int(weights * FIXED_SHARE), block_bytes))


def start(limit: int, free: int, block_bytes: int) -> int:
    """Blocks that there are before the first request."""
    return min(limit, max(FEWEST, int(free * START_SHARE) // block_bytes))


def growth(present: int, short: int, limit: int, free: int, block_bytes: int) -> int:
    """Blocks to add where `short` are missing: as many as there are, so that a cache doubles, but not many more than
    are missing where these are large. 0 where memory has no step's worth."""
    ahead = min(present, AHEAD // block_bytes)
    affordable = min(int(free * FREE_SHARE), free - HEADROOM) // block_bytes
    wanted = min(limit - present, max(short, ahead, FEWEST))
    blocks = min(wanted, affordable)
    return blocks if blocks >= min(wanted, FEWEST) else 0


def kept(start: int, held: int, used: int, quiet: float, free: int) -> int:
    """How many of the first blocks stay when nothing was asked for in `quiet` seconds: those up to the last one that a
    request holds, and up to the last `used` one, which keeps a prompt's beginning for others, until these are old or
    memory is scarce."""
    if free < HEADROOM:
        return max(FEWEST, held)
    return max(start, held, used if quiet < PREFIXES_KEPT else 0)
