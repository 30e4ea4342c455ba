"""How fast models were at their warm-up, by node and engine: placement's means to choose between engines."""

from exo.domain.instance import Instance
from exo.domain.state import SPEEDS_KEPT, Speed, State


def measured(state: State, instance: Instance, tokens_per_second: float) -> tuple[Speed, ...]:
    """What State knows after one more measurement. Of several ranks nothing is kept: their speed is that of no node."""
    if len(instance.shards) > 1 or not tokens_per_second:
        return state.speeds
    speed = Speed(
        node_id=instance.node_ids[0],
        engine=instance.engine,
        model_id=instance.model_id,
        tokens_per_second=tokens_per_second,
    )
    others = [one for one in state.speeds if not one.is_of(speed.node_id, speed.engine, speed.model_id)]
    return (*others[1 - SPEEDS_KEPT :], speed)
