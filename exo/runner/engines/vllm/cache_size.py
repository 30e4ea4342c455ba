"""How much memory keys and values get."""

from dataclasses import dataclass

import torch

from exo.domain.limits import CONTEXT_TOKENS
from exo.domain.model_card import ModelCard
from exo.errors import Fatal
from exo.node.container import available_memory

BLOCK = 32
"""Tokens of a block: the least that vLLM's CPU attention takes, and any of its GPU ones does."""
REQUESTS = 4
"""So many of the context that a placement reserves memory for are held at once; prefixes are kept in it too."""
SHARE = 0.5
"""At most, of the memory that is free before the weights are loaded, less those."""


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Of keys and values."""

    bytes: int
    tokens: int


def cache_size(card: ModelCard) -> CacheSize:
    """For a few requests of a usual context, or one of the model's longest, as far as memory allows.

    It is taken at once. Raises Fatal where memory holds not one block.
    """
    free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else available_memory()
    most = int((free - card.weight_bytes) * SHARE)
    block = card.kv_bytes(BLOCK)
    wanted = max(card.context, REQUESTS * CONTEXT_TOKENS)
    blocks = min(most // block, 1 + -(-wanted // BLOCK))
    if blocks < 2:
        raise Fatal(f"no memory for keys and values: {free} bytes are free, and the weights take {card.weight_bytes}")
    return CacheSize(blocks * block, (blocks - 1) * BLOCK)  # vLLM keeps one block for itself
