"""What a worker has to do: the difference between what State wants of its node and what is there."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from exo.domain.ids import ModelId, NodeId, RunnerId
from exo.domain.instance import Instance
from exo.domain.model_card import ModelCard
from exo.domain.runner_status import Failed
from exo.domain.shard import Shard
from exo.domain.state import Node, Runner, State, is_up, requested_on


@dataclass(frozen=True, slots=True)
class Local:
    """What a worker has going."""

    processes: Mapping[RunnerId, str]
    """The start of each runner that has a process now."""
    preparing: Set[ModelId]
    ready: Set[ModelId]
    """Models that are complete on disk."""
    deleting: Set[ModelId] = field(default_factory=frozenset[ModelId])
    """Models whose deletion goes on, or is not recorded yet."""


@dataclass(frozen=True, slots=True)
class StartRunner:
    """Start a process for a shard."""

    instance: Instance
    shard: Shard


@dataclass(frozen=True, slots=True)
class StopRunner:
    """End a runner's process."""

    runner_id: RunnerId
    reason: str


@dataclass(frozen=True, slots=True)
class PrepareModel:
    """Bring a model onto the disk: fetch, convert, check."""

    card: ModelCard


@dataclass(frozen=True, slots=True)
class AbandonModel:
    """Nobody needs the model any more that is being prepared."""

    model_id: ModelId


@dataclass(frozen=True, slots=True)
class DeleteModel:
    """Delete a model from the disk."""

    model_id: ModelId


Action = StartRunner | StopRunner | PrepareModel | AbandonModel | DeleteModel


def plan(node_id: NodeId, state: State, local: Local, now: float) -> list[Action]:
    """The actions that bring a node closer to what State wants of it. Pure; `now` in seconds since the epoch.

    A model that is to be deleted is so before anything else: whoever came to need it since has it fetched again.
    """
    node = state.nodes.get(node_id)
    mine = [runner for _, runner in sorted(state.runners.items()) if runner.node_id == node_id]
    if node is None:
        mine = []
    to_delete = set(node.removals) if node else set[ModelId]()
    leaving = to_delete | local.deleting
    deletions = [DeleteModel(model_id) for model_id in sorted(to_delete - local.deleting - local.preparing)]
    wanted = requested_on(state, node_id)
    needed = {state.instances[runner.instance_id].model_id for runner in mine}
    abandons = [AbandonModel(model_id) for model_id in sorted(local.preparing - needed - wanted)]
    staying = [runner for runner in mine if state.instances[runner.instance_id].model_id not in leaving]
    starts = _starts(staying, state, local, now)
    begun = {action.card.model_id for action in starts if isinstance(action, PrepareModel)}
    downloads = _downloads(node, wanted - begun - leaving, local)
    return [*_stops(mine, local), *abandons, *deletions, *starts, *downloads]


def _stops(mine: list[Runner], local: Local) -> list[Action]:
    wanted = {runner.runner_id: runner for runner in mine}
    actions: list[Action] = []
    for runner_id, process in sorted(local.processes.items()):
        runner = wanted.get(runner_id)
        if runner is None:
            actions.append(StopRunner(runner_id, "its instance is gone"))
        elif isinstance(runner.status, Failed) and runner.process == process:
            actions.append(StopRunner(runner_id, runner.status.reason))
    return actions


def _downloads(node: Node | None, wanted: Set[ModelId], local: Local) -> list[Action]:
    """Of what somebody wants here, what is not on its way. What has come, and State does not know of yet, is left."""
    actions: list[Action] = []
    for model_id in sorted(wanted - local.preparing):
        holding = node.holdings.get(model_id) if node else None
        if holding is not None and (holding.status == "ready" or model_id not in local.ready):
            actions.append(PrepareModel(holding.card))
    return actions


def _starts(mine: list[Runner], state: State, local: Local, now: float) -> list[Action]:
    actions: list[Action] = []
    asked: set[ModelId] = set()
    for runner in mine:
        if runner.runner_id in local.processes or not _may_start(runner, now):
            continue
        instance = state.instances[runner.instance_id]
        if instance.model_id in local.ready:
            if not _peers_have(state, instance, runner):
                continue
            shard = next(shard for shard in instance.shards if shard.runner_id == runner.runner_id)
            actions.append(StartRunner(instance, shard))
        elif instance.model_id not in local.preparing | asked:
            asked.add(instance.model_id)
            actions.append(PrepareModel(instance.card))
    return actions


def _peers_have(state: State, instance: Instance, runner: Runner) -> bool:
    """Whether the model is on the disks of the other ranks' nodes: no rank waits for another one's download."""
    others = [state.nodes.get(node_id) for node_id in instance.node_ids if node_id != runner.node_id]
    holdings = [node.holdings.get(instance.model_id) if node else None for node in others]
    return all(holding is not None and holding.status == "ready" for holding in holdings)


def _may_start(runner: Runner, now: float) -> bool:
    if isinstance(runner.status, Failed):
        return now >= runner.retry_at
    return not is_up(runner)
