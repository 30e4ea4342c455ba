"""The signs of life that runners send to their worker, and API processes to the master. Never logged."""

from pydantic import NonNegativeFloat, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.ids import ApiId, RunnerId, TaskId


class RunnerBeat(Frozen):
    """What a runner is doing right now."""

    runner_id: RunnerId
    process: str
    in_flight: NonNegativeInt
    """Generations in the engine."""
    step_seconds: NonNegativeFloat
    """How long the engine's current step has taken so far; 0 between steps."""
    loaded_layers: NonNegativeInt = 0
    """Layers of this rank whose weights are in memory, while it loads."""
    total_layers: NonNegativeInt = 0
    """Of how many; 0 before it is known."""


class ApiBeat(Frozen):
    """An API process lives, and so do the readers of all generations that it asked for."""

    api_id: ApiId
    reading: tuple[TaskId, ...] = ()
    """Generations that it did not ask for, and of which a client came back to it."""
