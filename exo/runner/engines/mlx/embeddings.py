"""The requests for vectors that are being computed: a slice of their texts at each step that is theirs."""

from collections.abc import Sequence

from mlx import nn

from exo.domain.ids import TaskId
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, VectorOutput
from exo.runner.engines.mlx.failures import STEP_ERRORS, Failures
from exo.runner.engines.mlx.hidden_states import HiddenStates
from exo.runner.engines.mlx.passes import compute_passes
from exo.runner.engines.mlx.schedule import Slice, WaitingPrompt, affordable, next_slices
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.mlx.texts import Text, TextsRequest, rows_together
from exo.runner.engines.ranks import Ranks
from exo.runner.engines.vectors import Row, unit

Owned = tuple[TextsRequest, Text]


class Embeddings:
    """Requests for vectors from their admission to their last vector."""

    def __init__(
        self, model: nn.Module, states: HiddenStates | None, ranks: Ranks, pace: SlicePace, failures: Failures
    ) -> None:
        """`states`: None where the model gives none; then there are no such requests."""
        self._model = model
        self._states = states
        self._ranks = ranks
        self._pace = pace
        self._failures = failures
        self._steps = 0
        self.waiting: dict[TaskId, TextsRequest] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of their states."""
        return sum(request.nbytes for request in self.waiting.values())

    def advance(self, others: int) -> list[EngineOutput]:
        """Computes a slice, while so many other requests stand still."""
        texts = [(request, text) for request in self.waiting.values() for text in request.next_texts()]
        self._steps += 1
        # One prompt, to the pace: no text has to wait for others of its request.
        (budget,) = self._ranks.agree([self._pace.budget(others, [sum(text.left for _, text in texts)])])
        waiting = [
            WaitingPrompt((request, text), text.left, request.arrived, text.left, self._can_share(text))
            for request, text in texts
        ]
        slices = affordable(next_slices(waiting, budget, self._steps), budget)
        return compute_passes(slices, self._pace, self._compute_group)

    def _can_share(self, text: Text) -> bool:
        return self._known.together and text.done == 0

    @property
    def _known(self) -> HiddenStates:
        assert self._states is not None
        return self._states

    def _compute_group(self, group: Sequence[Slice[Owned]]) -> list[EngineOutput]:
        if len(group) > 1:
            owned = [slice_.key for slice_ in group]
            try:
                rows = rows_together(
                    self._known, [text for _, text in owned], [request.pooling for request, _ in owned]
                )
            except STEP_ERRORS as error:
                self._failures.check_alone(error)
            else:
                for request, text in owned:
                    request.note(text, text.done)
                return self._given(owned, rows)
        return [output for slice_ in group for output in self._compute(*slice_.key, slice_.tokens)]

    def _compute(self, request: TextsRequest, text: Text, tokens: int) -> list[EngineOutput]:
        if request.task_id not in self.waiting:
            return []  # another text of it has failed
        try:
            text.advance(self._model, self._known, tokens, request.pooling)
            rows = [] if text.left else [text.row(request.pooling)]
            request.note(text, tokens)
        except STEP_ERRORS as error:
            del self.waiting[request.task_id]
            return [self._failures.of(request.task_id, error)]
        return self._given([(request, text)], rows) if rows else [_progress(request)]

    def _given(self, owned: Sequence[Owned], rows: Sequence[Row]) -> list[EngineOutput]:
        """The vectors of texts that are computed. All ranks agree on which have one."""
        self._failures.forget()
        vectors = [unit(row, request.dimensions) for (request, _), row in zip(owned, rows, strict=True)]
        good = self._ranks.agree([int(vector is not None) for vector in vectors])
        outputs: list[EngineOutput] = []
        for (request, text), vector, is_good in zip(owned, vectors, good, strict=True):
            if request.task_id in self.waiting:
                outputs += self._vector(request, text, vector if is_good else None)
        return outputs

    def _vector(self, request: TextsRequest, text: Text, vector: bytes | None) -> list[EngineOutput]:
        del request.texts[text.index]
        if vector is None or not request.texts:
            del self.waiting[request.task_id]
        if vector is None:
            reason = f"input[{text.index}]: what the model gives for it are no numbers that make a vector"
            return [FailedOutput(request.task_id, "engine_error", reason)]
        return [_progress(request), VectorOutput(request.task_id, text.index, vector, is_last=not request.texts)]


def _progress(request: TextsRequest) -> PrefillOutput:
    return PrefillOutput(request.task_id, request.done, request.total)
