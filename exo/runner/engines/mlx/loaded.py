"""A model in memory, with what generates from it."""

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from exo.domain.model_card import ModelCard
from exo.runner.engines.base import Progress, Tokenizer
from exo.runner.engines.mlx import memory
from exo.runner.engines.mlx.batch import Batch
from exo.runner.engines.mlx.sampling import Samplers
from exo.runner.engines.mlx.weights import load_weights

KEPT_BYTES = 256 << 20
"""Freed memory that an idle engine may keep. One short conversation's keys and values fit in it."""


class Loaded:
    """Made by, and belonging to, one thread."""

    def __init__(self, card: ModelCard, tokenizer: Tokenizer, folder: Path, on_progress: Progress) -> None:
        """Raises Fatal where the weights cannot be loaded."""
        self.card = card
        self.tokenizer = tokenizer
        self.samplers = Samplers()
        self._weights = load_weights(folder, on_progress)
        self.batch = Batch(self._weights, tokenizer.end_tokens)

    def free_bytes(self) -> int:
        """Bytes free for new arrays."""
        return memory.free_bytes()

    def missing_bytes(self, tokens: Sequence[int]) -> int:
        """Bytes of keys and values that requests of so many `tokens` will need and that are not held yet.

        Requests that decode together are padded to the longest of them.
        """
        return self.card.kv_bytes(len(tokens) * max(tokens)) - self.batch.cache_bytes

    def renew_batch(self) -> None:
        """Drops every request and whatever state an error left behind."""
        self.batch.close()
        self.batch = Batch(self._weights, self.tokenizer.end_tokens)
        self.samplers = Samplers()

    def release_cache(self) -> None:
        """Gives memory that MLX keeps for reuse back to the system, where it is much: it takes tens of milliseconds."""
        if mx.get_cache_memory() > KEPT_BYTES:
            mx.clear_cache()

    def close(self) -> None:
        """Gives back the weights too."""
        self.batch.close()
        del self._weights
        mx.clear_cache()
