"""Errors of a step: whose they are, and when they are the engine's."""

from exo.domain.ids import TaskId
from exo.runner.engines.base import FailedOutput
from exo.runner.engines.mlx.choosing import ChoiceError
from exo.runner.engines.ranks import Ranks

STEP_ERRORS = (ChoiceError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError)
"""What MLX, a model or a sampler raises where it cannot compute a request."""

FAILURES_LIMIT = 3
"""Requests that may fail one after the other, with no token in between, before the engine itself counts as broken."""


class Failures:
    """Counts them."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._in_a_row = 0

    def of(self, task_id: TaskId, error: Exception) -> FailedOutput:
        """The end of the request that failed. Raises `error` where it is not that request's alone."""
        self.check_alone(error)
        if not _names_its_request(error):
            self._in_a_row += 1
        if self._in_a_row >= FAILURES_LIMIT:
            raise error
        said = str(error) if isinstance(error, ChoiceError) else f"{type(error).__name__}: {error}"
        return FailedOutput(task_id, "engine_error", said)

    def check_alone(self, error: Exception) -> None:
        """Raises `error` where other ranks may not have met it: they would wait for this one for ever."""
        if self._ranks.size > 1 and not isinstance(error, ChoiceError):
            raise error

    def forget(self) -> None:
        """A token came: the engine works."""
        self._in_a_row = 0


def _names_its_request(error: Exception) -> bool:
    return isinstance(error, ChoiceError) and error.task_id is not None
