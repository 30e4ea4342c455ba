"""A model in memory, with what generates from it."""

from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx_lm.utils import maybe_set_recommended_wired_limit

from exo.domain.model_card import ModelCard
from exo.models.vector_form import read_vector_form
from exo.runner.engines.base import Progress, Tokenizer
from exo.runner.engines.mlx.hidden_states import HiddenStates, find_hidden_states
from exo.runner.engines.mlx.sampling import Samplers
from exo.runner.engines.mlx.scheduler import Scheduler
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.mlx.weights import Cut, load_weights
from exo.runner.engines.mlx.width import WIDTH, width
from exo.runner.engines.ranks import Ranks


class Loaded:
    """Made by, and belonging to, one thread."""

    def __init__(
        self,
        card: ModelCard,
        tokenizer: Tokenizer,
        folder: Path,
        on_progress: Progress,
        cut: Cut,
        ranks: Ranks,
        pace: SlicePace | None,
    ) -> None:
        """What `cut` leaves of a model that `ranks` hold together. Raises Fatal where it cannot be loaded."""
        self.card = card
        self.tokenizer = tokenizer
        self.samplers = Samplers(tokenizer.token_bytes)
        self.vector_form = read_vector_form(folder)
        self.states: HiddenStates | None = None
        side_by_side = WIDTH

        def try_and_cut(model: nn.Module) -> list[nn.Module]:
            nonlocal side_by_side
            side_by_side = width(model)  # of the whole model: a rank's part may hold nothing that fails
            self.states = find_hidden_states(model, card.hidden_size)
            return cut(model)

        weights = load_weights(folder, on_progress, try_and_cut)
        # On Metal, weights and caches stay in memory; the limit from before is put back at the end.
        self._wired_before = maybe_set_recommended_wired_limit()
        self.scheduler = Scheduler(
            weights,
            tokenizer.end_tokens,
            ranks,
            pace=pace,
            on_lost_step=self.samplers.forget_step,
            width=side_by_side,
            states=self.states,
        )

    @property
    def peak_memory_bytes(self) -> int:
        """The most that MLX has held at once in this process."""
        return mx.get_peak_memory()

    def close(self) -> None:
        """Gives back the memory of the weights, the keys and the values."""
        self.scheduler.close()
        del self.scheduler
        if self._wired_before is not None:
            mx.set_wired_limit(self._wired_before)
        mx.clear_cache()
