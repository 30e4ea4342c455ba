"""What a worker does to bring its node to what State wants of it."""

from collections.abc import Mapping

import pytest
from test_domain_cluster import MIDDLE, SMALL, Cluster

from exo.domain import limits
from exo.domain.ids import ModelId, NodeId, RunnerId
from exo.domain.messages.commands import DeleteInstance
from exo.domain.plan import AbandonModel, Action, Local, PrepareModel, StartRunner, StopRunner, plan
from exo.domain.runner_status import Connecting, Failed, Stopped

A, B = NodeId("a"), NodeId("b")


@pytest.fixture
def cluster() -> Cluster:
    """One node of 16 GB."""
    cluster = Cluster()
    cluster.join()
    return cluster


def planned(
    cluster: Cluster,
    processes: Mapping[RunnerId, str] | None = None,
    *,
    preparing: frozenset[ModelId] = frozenset(),
    ready: frozenset[ModelId] = frozenset({SMALL.model_id, MIDDLE.model_id}),
    node_id: NodeId = A,
) -> list[Action]:
    return plan(node_id, cluster.state, Local(processes or {}, preparing, ready), cluster.now)


def test_nothing_is_to_be_done_where_all_is_as_it_should_be(cluster: Cluster) -> None:
    assert planned(cluster) == []
    runner = cluster.runner_of(cluster.place())
    assert planned(cluster, {runner.runner_id: runner.process}) == []


def test_a_placed_shard_is_started_where_its_model_is_on_the_disk(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    assert planned(cluster) == [StartRunner(instance, instance.shards[0])]


def test_a_runner_that_has_a_process_already_is_not_started_again(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    assert planned(cluster, {instance.runner_ids[0]: "not reported yet"}) == []


def test_what_is_placed_on_another_node_is_its_business(cluster: Cluster) -> None:
    cluster.place(ready=False)
    cluster.join("b")
    assert planned(cluster, node_id=B) == []


def test_a_missing_model_is_prepared_first_and_once(cluster: Cluster) -> None:
    cluster.place(ready=False)
    cluster.place(ready=False)
    assert planned(cluster, ready=frozenset()) == [PrepareModel(SMALL)]
    assert planned(cluster, ready=frozenset(), preparing=frozenset({SMALL.model_id})) == []


def test_a_model_that_nobody_needs_any_more_is_abandoned(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    cluster.tell(DeleteInstance(instance_id=instance.instance_id))
    preparing = frozenset({SMALL.model_id, MIDDLE.model_id})
    assert planned(cluster, preparing=preparing) == [AbandonModel(MIDDLE.model_id), AbandonModel(SMALL.model_id)]


def test_a_runner_whose_instance_is_gone_is_stopped(cluster: Cluster) -> None:
    instance = cluster.place()
    runner = cluster.runner_of(instance)
    cluster.tell(DeleteInstance(instance_id=instance.instance_id))
    (action,) = planned(cluster, {runner.runner_id: runner.process})
    assert action == StopRunner(runner.runner_id, "its instance is gone")


def test_a_process_that_overran_its_deadline_is_stopped_and_a_later_one_left_alone(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    cluster.runner_seen(instance, Connecting(), "p1")
    cluster.passes(limits.RUNNER_CONNECTING + 1)
    (action,) = planned(cluster, {instance.runner_ids[0]: "p1"})
    assert isinstance(action, StopRunner)
    assert "connecting" in action.reason
    assert planned(cluster, {instance.runner_ids[0]: "p2"}) == []


def test_a_failed_runner_is_started_again_after_its_pause_and_not_before(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.runner_seen(instance, Failed(reason="killed"))
    assert planned(cluster) == []
    cluster.now = cluster.runner_of(instance).retry_at
    assert planned(cluster) == [StartRunner(instance, instance.shards[0])]


def test_a_stopped_runner_that_is_still_wanted_is_started_at_once(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.runner_seen(instance, Stopped())
    assert planned(cluster) == [StartRunner(instance, instance.shards[0])]


def test_a_node_that_state_does_not_know_stops_everything(cluster: Cluster) -> None:
    runner = cluster.runner_of(cluster.place())
    cluster.passes(limits.NODE_SILENT + 1, {A: cluster.now})
    actions = planned(cluster, {runner.runner_id: runner.process}, preparing=frozenset({MIDDLE.model_id}))
    assert actions == [StopRunner(runner.runner_id, "its instance is gone"), AbandonModel(MIDDLE.model_id)]
