"""The choice between engines that both have a place for a model: by what their warm-ups measured on its node."""

from collections.abc import Sequence
from dataclasses import replace

from exo.domain import limits
from exo.domain.ids import ModelId
from exo.domain.placement.request import Placement
from exo.domain.state import State


def fastest(state: State, model_id: ModelId, placements: Sequence[Placement]) -> Placement:
    """Of one placement an engine, the preferred engine's first: that one, or one on the same node by an engine that was
    measured to be faster there. Its reason says which."""
    chosen = placements[0]
    for other in placements[1:]:
        speeds = speed_of(state, model_id, chosen), speed_of(state, model_id, other)
        chosen, why = _compared(chosen, other, *speeds)
        chosen = replace(chosen, reason=f"{chosen.reason}; {why}")
    return chosen


def speed_of(state: State, model_id: ModelId, placement: Placement) -> float | None:
    """Tokens per second of one stream, as last measured for this model and engine on the placement's node; None where
    that never was, and for several nodes."""
    if len(placement.shares) > 1:
        return None
    (node_id,) = placement.node_ids
    found = (one for one in state.speeds if one.is_of(node_id, placement.engine, model_id))
    return next((one.tokens_per_second for one in found), None)


def _compared(
    chosen: Placement, other: Placement, speed: float | None, other_speed: float | None
) -> tuple[Placement, str]:
    """The one to take, and why."""
    if speed is None or other_speed is None or chosen.node_ids != other.node_ids:
        return chosen, f"{chosen.engine} is preferred to {other.engine}"
    faster = other_speed > speed * limits.FASTER
    figures = f"{chosen.engine} was measured at {speed:.1f} tokens/s there, {other.engine} at {other_speed:.1f}"
    return (other if faster else chosen), figures
