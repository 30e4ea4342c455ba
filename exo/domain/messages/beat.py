"""The sign of life that a runner sends to its worker. Never logged."""

from pydantic import NonNegativeFloat, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.ids import RunnerId


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
