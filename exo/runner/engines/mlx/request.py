"""A request on its way through the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exo.domain.ids import TaskId
from exo.runner.engines.mlx.sampling import Choice
from exo.runner.kv.form import Sink


@dataclass(slots=True, eq=False)
class Request:
    """What is to be generated, and what has been."""

    task_id: TaskId
    prompt: Sequence[int]
    choice: Choice
    """What chooses its tokens."""
    most: int
    """Tokens that may be generated."""
    reserved: int
    """Tokens, prompt included, that memory is set aside for."""
    arrived: int
    """Its number in the order of arrival."""
    deadline: float = float("inf")
    """When it no longer waits for memory, on the engine's clock."""
    generated: list[int] = field(default_factory=list[int])
    sink: Sink | None = None
    """What takes the prompt's state, where it is wanted alone: nothing is generated."""
    suspect: bool = False
    """It ran when a step failed; it takes its next step alone, which shows whether the failure is its own."""

    @property
    def tokens(self) -> list[int]:
        """All that the model is to see of it so far."""
        return [*self.prompt, *self.generated]

    @property
    def length(self) -> int:
        """How many those are."""
        return len(self.prompt) + len(self.generated)
