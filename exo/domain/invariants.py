"""What must hold in every State. Checked by the property tests and by `exo log verify`."""

from exo.domain.prefill_sources import prefill_ids
from exo.domain.state import State


def violations(state: State) -> list[str]:
    """One sentence for each broken invariant; none when all is well."""
    return [*_orphans(state), *_lost_places(state)]


def _orphans(state: State) -> list[str]:
    found = [
        f"runner {runner_id} has no instance"
        for runner_id, runner in sorted(state.runners.items())
        if runner.instance_id not in state.instances
    ]
    found += [
        f"generation {task_id} is on an instance that is gone"
        for task_id, generation in sorted(state.generations.items())
        if generation.instance_id is not None and generation.instance_id not in state.instances
    ]
    found += [
        f"the link to prefill for instance {decode_id} has lost one of the two"
        for decode_id, link in sorted(state.prefill_links.items())
        if decode_id not in state.instances or link.prefill_id not in state.instances
    ]
    found += [
        f"instance {decode_id} both prefills for another and has one that prefills for it"
        for decode_id in sorted(prefill_ids(state) & frozenset(state.prefill_links))
    ]
    return found


def _lost_places(state: State) -> list[str]:
    found: list[str] = []
    for instance_id, instance in sorted(state.instances.items()):
        found += [
            f"instance {instance_id} is on the unknown node {node_id}"
            for node_id in instance.node_ids
            if node_id not in state.nodes
        ]
        found += [
            f"instance {instance_id} lacks its runner {runner_id}"
            for runner_id in instance.runner_ids
            if runner_id not in state.runners
        ]
    return found
