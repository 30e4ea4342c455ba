"""Models that are unloaded when nobody has asked for them for a while."""

import pytest
from test_domain_cluster import MIDDLE, SMALL, Cluster, card, types

from exo.domain import limits
from exo.domain.messages.commands import DeleteInstance, LimitIdleTime
from exo.domain.state import instances_of

UNKNOWN = card("unknown")


@pytest.fixture
def cluster() -> Cluster:
    """One node with the small model loaded."""
    cluster = Cluster()
    cluster.join()
    cluster.place(SMALL)
    return cluster


def limit(cluster: Cluster, seconds: float | None) -> list[str]:
    return types(cluster.tell(LimitIdleTime(model_id=SMALL.model_id, seconds=seconds)))


def test_a_model_that_nobody_asks_for_goes_when_its_time_is_over(cluster: Cluster) -> None:
    assert limit(cluster, 60) == ["IdleTimeLimited"]
    assert cluster.passes(59) == []
    (deleted,) = cluster.passes(1)
    assert deleted.type == "InstanceDeleted"
    assert deleted.reason == "nobody asked for it for 60 s"
    assert not cluster.state.idle_limits


def test_a_model_without_a_limit_stays(cluster: Cluster) -> None:
    assert cluster.passes(10**6) == []
    limit(cluster, 60)
    limit(cluster, None)
    assert cluster.passes(10**6) == []


def test_the_time_begins_anew_with_the_end_of_each_generation(cluster: Cluster) -> None:
    limit(cluster, 60)
    cluster.start("t1")
    assert types(cluster.passes(61)) == []
    cluster.ended("t1")
    assert types(cluster.passes(59)) == []
    assert types(cluster.passes(1)) == ["InstanceDeleted"]


def test_zero_seconds_end_with_the_generation_and_not_before(cluster: Cluster) -> None:
    cluster.start("t1")
    limit(cluster, 0)
    assert types(cluster.passes(1)) == []
    cluster.ended("t1")
    assert types(cluster.passes(0)) == ["InstanceDeleted"]


def test_a_model_that_loads_is_not_idle_and_begins_its_time_when_it_is_ready(cluster: Cluster) -> None:
    cluster.tell(LimitIdleTime(model_id=MIDDLE.model_id, seconds=10))
    instance = cluster.place(MIDDLE, ready=False)
    assert types(cluster.passes(20)) == []
    cluster.make_ready(instance)
    assert types(cluster.passes(9)) == []
    assert types(cluster.passes(1)) == ["InstanceDeleted"]


def test_all_instances_of_the_model_go_and_those_of_others_stay(cluster: Cluster) -> None:
    cluster.place(SMALL)
    cluster.place(MIDDLE)
    limit(cluster, 60)
    assert types(cluster.passes(60)) == ["InstanceDeleted", "InstanceDeleted"]
    assert len(instances_of(cluster.state, MIDDLE.model_id)) == 1


def test_the_limit_goes_with_the_last_instance(cluster: Cluster) -> None:
    second = cluster.place(SMALL)
    limit(cluster, 60)
    cluster.tell(DeleteInstance(instance_id=second.instance_id))
    assert SMALL.model_id in cluster.state.idle_limits
    (first,) = instances_of(cluster.state, SMALL.model_id)
    cluster.tell(DeleteInstance(instance_id=first.instance_id))
    assert not cluster.state.idle_limits


def test_what_was_said_of_a_model_that_is_not_there_holds_for_the_request_that_follows(cluster: Cluster) -> None:
    cluster.tell(LimitIdleTime(model_id=MIDDLE.model_id, seconds=0))
    assert types(cluster.passes(limits.IDLE_UNPLACED - 1)) == []
    cluster.start("t1", MIDDLE)
    (instance,) = instances_of(cluster.state, MIDDLE.model_id)
    cluster.make_ready(instance)
    cluster.ended("t1")
    assert types(cluster.passes(0)) == ["InstanceDeleted"]


def test_what_was_said_of_a_model_that_never_came_binds_nobody_later(cluster: Cluster) -> None:
    cluster.tell(LimitIdleTime(model_id=MIDDLE.model_id, seconds=0))
    assert types(cluster.passes(limits.IDLE_UNPLACED)) == ["IdleTimeLimited"]
    assert not cluster.state.idle_limits


def test_a_model_that_no_node_knows_has_no_limit(cluster: Cluster) -> None:
    assert cluster.refusal(LimitIdleTime(model_id=UNKNOWN.model_id, seconds=1)).code == "model_not_found"
