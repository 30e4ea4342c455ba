"""How much of a generation's time went by because its model was not loaded. Pure."""

from exo.domain.ids import TaskId
from exo.domain.state import State


def load_seconds(state: State, task_id: TaskId) -> float:
    """From when a generation was queued until the instance that it was given to was ready; 0 where it was ready before,
    and for one that was given to none. Both times are the master's."""
    generation = state.generations.get(task_id)
    instance = state.instances.get(generation.instance_id) if generation and generation.instance_id else None
    if generation is None or instance is None:
        return 0.0
    ready_at = max(state.runners[runner_id].since for runner_id in instance.runner_ids)
    return max(0.0, ready_at - generation.queued_at)
