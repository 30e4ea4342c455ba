"""The prompts that are being computed: which begins from what, and a slice of each whose turn it is."""

from collections.abc import Sequence

from mlx import nn

from exo.domain.ids import TaskId
from exo.runner.engines.base import FailedOutput, PrefillOutput
from exo.runner.engines.mlx.failures import STEP_ERRORS, Failures
from exo.runner.engines.mlx.keeping import Keeping
from exo.runner.engines.mlx.layers import new_layers
from exo.runner.engines.mlx.passes import compute_passes
from exo.runner.engines.mlx.prefill import Prefill, compute_together
from exo.runner.engines.mlx.prefix_cache import Found, common_length
from exo.runner.engines.mlx.request import Request
from exo.runner.engines.mlx.schedule import Slice, WaitingPrompt, next_slices
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.ranks import Ranks

SHARED_LEAST = 128
"""Tokens that another prompt has computed or will, for this one to wait for them. Fewer are computed as quickly."""
SNAPSHOT_LEAST = 32
"""Tokens that a snapshot must save."""
MERGED_MOST = 256
"""Tokens of a state with which a prompt may share a pass: to share it, all of it is copied, twice."""
TAIL = 16
"""Tokens before a prompt's end where a state that cannot be trimmed is kept too: what a chat template adds to have the
assistant begin may be another thing in the next turn's history."""


class Prompts:
    """Requests from their admission to their last token but one."""

    def __init__(
        self,
        model: nn.Module,
        keeping: Keeping,
        ranks: Ranks,
        pace: SlicePace,
        failures: Failures,
        snapshot_every: int | None,
    ) -> None:
        """`snapshot_every` so many tokens the state is kept that cannot be trimmed; None where every state can."""
        self._model = model
        self._keeping = keeping
        self._ranks = ranks
        self._pace = pace
        self._failures = failures
        self._snapshot_every = snapshot_every
        self._steps = 0
        self.waiting: dict[TaskId, Prefill] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of their states."""
        return sum(prefill.nbytes for prefill in self.waiting.values())

    def add(self, request: Request) -> None:
        """Takes an admitted request."""
        self.waiting[request.task_id] = Prefill(request)

    def drop(self, task_id: TaskId) -> None:
        """Cancels one. What was computed of it is kept for others."""
        prefill = self.waiting.pop(task_id)
        if prefill.done > prefill.cached:
            self._keep(prefill)

    def advance(self, decoding: int) -> list[PrefillOutput | FailedOutput]:
        """Computes a slice, while so many requests that decode stand still."""
        self._begin_all()
        prefills = [prefill for prefill in self.waiting.values() if prefill.begun and prefill.left]
        if not prefills:
            return []
        self._steps += 1
        lefts = [prefill.left for prefill in prefills]
        (budget,) = self._ranks.agree([self._pace.budget(decoding, lefts)])
        waiting = [
            WaitingPrompt(prefill, prefill.left, prefill.request.arrived, prefill.until_stop, self._can_share(prefill))
            for prefill in prefills
        ]
        return compute_passes(next_slices(waiting, budget, self._steps), self._pace, self._compute_group)

    def take_finished(self) -> list[Prefill]:
        """Those that are computed, whose states are kept and which are to decode now."""
        finished = [prefill for prefill in self.waiting.values() if prefill.begun and not prefill.left]
        for prefill in finished:
            del self.waiting[prefill.request.task_id]
            self._keep(prefill)
        return finished

    def _can_share(self, prefill: Prefill) -> bool:
        """Not where a state is handed out: that is done as layers are computed, of one prompt alone."""
        return self._snapshot_every is None and prefill.done <= MERGED_MOST and prefill.handing is None

    def _compute_group(self, group: Sequence[Slice[Prefill]]) -> list[PrefillOutput | FailedOutput]:
        if len(group) > 1:
            try:
                compute_together(self._model, [slice_.key for slice_ in group])
            except STEP_ERRORS as error:
                self._failures.check_alone(error)
            else:
                return [_progress(slice_.key) for slice_ in group]
        return [self._compute(slice_.key, slice_.tokens) for slice_ in group]

    def _compute(self, prefill: Prefill, tokens: int) -> PrefillOutput | FailedOutput:
        request = prefill.request
        try:
            prefill.advance(self._model, tokens)
        except STEP_ERRORS as error:
            del self.waiting[request.task_id]
            return self._failures.of(request.task_id, error)
        if prefill.done in prefill.stops:
            self._keep(prefill)
        return _progress(prefill)

    def _begin_all(self) -> None:
        """Has every prompt begin that need not wait for another one to compute what both begin with."""
        for prefill in self.waiting.values():
            if not prefill.begun and not self._waits(prefill):
                self._begin(prefill)

    def _waits(self, prefill: Prefill) -> bool:
        """Whether it waits for another prompt that is still on its way to there."""
        if prefill.waits_for is None:
            return False
        other, common = prefill.waits_for
        return self.waiting.get(other.request.task_id) is other and other.done < common

    def _begin(self, prefill: Prefill) -> None:
        found = self._keeping.find(prefill.tokens, prefill.end)
        for other in [other for other in self.waiting.values() if other.begun]:
            common = min(prefill.end, common_length(prefill.tokens, other.tokens[: other.end]))
            if common - found.length < SHARED_LEAST:
                continue
            if other.done < common:
                other.stops.add(common)
                prefill.waits_for = other, common
                return
            self._keep(other)
            found = self._keeping.find(prefill.tokens, prefill.end)
        prefill.begin(self._keeping.restored(found) or new_layers(self._model), found.length)
        prefill.stops |= self._stops(prefill, found)

    def _stops(self, prefill: Prefill, found: Found) -> set[int]:
        """Where the state of a prompt is kept on its way, if it cannot be trimmed back to there.

        Also where it departs from what another request began with: whoever comes next with the same beginning (a
        system prompt, say) will depart there as well. The idea is Marconi's, https://arxiv.org/abs/2411.19379.
        """
        if self._snapshot_every is None:
            return set()
        every = range(self._snapshot_every, prefill.end, self._snapshot_every)
        stops = (*every, found.shared, prefill.end - TAIL)
        return {stop for stop in stops if stop - found.length >= SNAPSHOT_LEAST}

    def _keep(self, prefill: Prefill) -> None:
        if prefill.done == 0:
            return
        if self._snapshot_every is not None:
            prefill.keep_snapshot()
        self._keeping.put(prefill.tokens[: prefill.done], prefill.kept())


def _progress(prefill: Prefill) -> PrefillOutput:
    return PrefillOutput(prefill.request.task_id, prefill.done, len(prefill.tokens), prefill.cached)
