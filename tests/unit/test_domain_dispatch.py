"""How queued work goes on: order, slots, replicas, placement on demand, and making room."""

import pytest
from test_domain_cluster import LARGE, MIDDLE, SMALL, Cluster, card, node_seen, of_type, types

from exo.domain import limits
from exo.domain.ids import InstanceId, TaskId
from exo.domain.messages.events import GenerationDispatched, GenerationFinished, InstanceDeleted, InstancePlaced
from exo.domain.runner_status import Connecting, Failed


@pytest.fixture
def cluster() -> Cluster:
    """One node of 16 GB."""
    cluster = Cluster()
    cluster.join()
    return cluster


def where(cluster: Cluster, *tasks: str) -> list[InstanceId | None]:
    return [cluster.state.generations[TaskId(task)].instance_id for task in tasks]


def test_first_come_first_served(cluster: Cluster) -> None:
    instance = cluster.place(slots=1, ready=False)
    for task in ("t3", "t1", "t2"):
        assert types(cluster.start(task)) == ["GenerationQueued"]
    events = cluster.make_ready(instance)
    assert [one.task_id for one in of_type(events, GenerationDispatched)] == ["t3"]
    assert [one.task_id for one in of_type(cluster.ended("t3"), GenerationDispatched)] == ["t1"]
    assert [one.task_id for one in of_type(cluster.ended("t1"), GenerationDispatched)] == ["t2"]


def test_no_more_run_side_by_side_than_there_are_slots(cluster: Cluster) -> None:
    instance = cluster.place(slots=2)
    for task in ("t1", "t2", "t3"):
        cluster.start(task)
    assert where(cluster, "t1", "t2", "t3") == [instance.instance_id, instance.instance_id, None]


def test_a28_the_least_busy_replica_is_next(cluster: Cluster) -> None:
    first, second = cluster.place(slots=3).instance_id, cluster.place(slots=3).instance_id
    for task in ("t1", "t2", "t3", "t4"):
        cluster.start(task)
    assert where(cluster, "t1", "t2", "t3", "t4") == [first, second, first, second]
    cluster.ended("t2")
    cluster.ended("t4")
    cluster.start("t5")
    assert where(cluster, "t5") == [second]


def test_a_replica_that_is_not_ready_gets_nothing(cluster: Cluster) -> None:
    ready = cluster.place(slots=1).instance_id
    cluster.place(slots=1, ready=False)
    cluster.start("t1")
    cluster.start("t2")
    assert where(cluster, "t1", "t2") == [ready, None]


def test_a_dispatched_generation_names_the_processes_that_it_was_given_to(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.start("t1")
    assert cluster.state.generations[TaskId("t1")].processes == (cluster.runner_of(instance).process,)


def test_a_model_that_is_asked_for_is_placed_once_however_many_ask(cluster: Cluster) -> None:
    assert types(cluster.start("t1")) == ["GenerationQueued", "InstancePlaced"]
    assert types(cluster.start("t2")) == ["GenerationQueued"]
    assert cluster.passes(1) == []
    (instance,) = cluster.state.instances.values()
    assert [one.task_id for one in of_type(cluster.make_ready(instance), GenerationDispatched)] == ["t1", "t2"]


def test_two_models_that_are_asked_for_at_once_are_placed_one_after_the_other() -> None:
    cluster = Cluster()
    cluster.join()
    queued = [cluster.start("t1", SMALL)[0], cluster.start("t2", MIDDLE)[0]]
    other = Cluster()
    other.join()
    other.record(*queued)
    assert [one.instance.card for one in of_type(other.passes(1), InstancePlaced)] == [SMALL]
    assert [one.instance.card for one in of_type(other.passes(1), InstancePlaced)] == [MIDDLE]


def test_a27_room_is_made_by_unloading_an_idle_model(cluster: Cluster) -> None:
    idle = cluster.place(MIDDLE)
    wanted = card("other", 12)
    cluster.join(cards=(SMALL, MIDDLE, wanted), ready=(SMALL, MIDDLE, wanted))
    events = cluster.start("t1", wanted)
    assert [one.instance_id for one in of_type(events, InstanceDeleted)] == [idle.instance_id]
    assert "maker/other" in of_type(events, InstanceDeleted)[0].reason
    assert [one.instance.card for one in of_type(cluster.passes(1), InstancePlaced)] == [wanted]


def test_a_busy_a_wanted_or_a_loading_model_makes_no_room(cluster: Cluster) -> None:
    wanted = card("other", 12)
    busy = cluster.place(MIDDLE, slots=1)
    loading = cluster.place(SMALL, ready=False)
    cluster.join(cards=(SMALL, MIDDLE, wanted), ready=(SMALL, MIDDLE, wanted))
    cluster.start("running", MIDDLE)
    assert types(cluster.start("t1", wanted)) == ["GenerationQueued"]
    assert cluster.passes(1) == []
    assert set(cluster.state.instances) == {busy.instance_id, loading.instance_id}
    events = cluster.ended("running")
    assert [one.instance_id for one in of_type(events, InstanceDeleted)] == [busy.instance_id]


def test_no_model_is_unloaded_where_that_makes_no_room_for_the_one_that_is_wanted() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=64, cards=(LARGE, MIDDLE), ready=(LARGE, MIDDLE))
    full = cluster.place(LARGE, slots=1)
    cluster.start("running", LARGE)
    cluster.join("b", gigabytes=8, cards=(SMALL,), ready=(SMALL,))
    cluster.join("a", gigabytes=64, cards=(LARGE, MIDDLE, other := card("other", 30)), ready=(LARGE, MIDDLE, other))
    elsewhere = cluster.place(SMALL)
    assert elsewhere.node_ids == ("b",)
    assert types(cluster.start("t1", other)) == ["GenerationQueued"]
    assert set(cluster.state.instances) == {full.instance_id, elsewhere.instance_id}


def test_no_idle_model_is_unloaded_where_a_busy_one_is_in_the_way() -> None:
    cluster = Cluster()
    wanted = card("other", 12)
    cluster.join(gigabytes=16, cards=(SMALL, MIDDLE, wanted), ready=(SMALL, MIDDLE, wanted))
    busy, idle = cluster.place(MIDDLE), cluster.place(SMALL)
    cluster.start("running", MIDDLE)
    assert types(cluster.start("t1", wanted)) == ["GenerationQueued"]
    assert set(cluster.state.instances) == {busy.instance_id, idle.instance_id}


def test_a_model_too_large_for_every_node_ends_its_requests_at_once(cluster: Cluster) -> None:
    events = cluster.start("t1", LARGE)
    assert types(events) == ["GenerationQueued", "GenerationFinished"]
    finished = of_type(events, GenerationFinished)[0]
    assert (finished.finish_reason, finished.code) == ("error", "insufficient_memory")
    assert "44.00 GB" in finished.error


def test_a_failed_model_ends_those_that_wait_for_it(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    cluster.start("t1")
    cluster.start("t2")
    cluster.start("other", MIDDLE)
    cluster.runner_seen(instance, Connecting(), "p1")
    events = cluster.runner_seen(instance, Failed(reason="weights are cut off", permanent=True))
    finished = of_type(events, GenerationFinished)
    assert [(one.task_id, one.code) for one in finished] == [("t1", "model_failed"), ("t2", "model_failed")]
    assert all("weights are cut off" in one.error for one in finished)
    assert set(cluster.state.generations) == {"other"}


def test_a_failed_replica_leaves_the_queue_to_the_other(cluster: Cluster) -> None:
    healthy, broken = cluster.place(slots=1), cluster.place(ready=False)
    cluster.start("running")
    cluster.start("waiting")
    cluster.runner_seen(broken, Connecting(), "p1")
    cluster.runner_seen(broken, Failed(reason="broken", permanent=True))
    cluster.ended("running")
    assert where(cluster, "waiting") == [healthy.instance_id]


def test_requests_wait_for_a_node_that_is_away_and_go_on_when_it_is_back(cluster: Cluster) -> None:
    cluster.place(slots=1)
    cluster.start("running")
    cluster.start("waiting")
    node_id = cluster.join()
    cluster.passes(limits.NODE_SILENT + 1, {node_id: cluster.now})
    assert set(cluster.state.generations) == {"waiting"}
    assert cluster.passes(60) == []
    events = cluster.tell(node_seen(boot_id="second"))
    assert [one.instance.card for one in of_type(events, InstancePlaced)] == [SMALL]


def test_a_queue_shorter_than_its_deadline_keeps_its_place_through_a_restart_of_the_worker(cluster: Cluster) -> None:
    instance = cluster.place(slots=1)
    cluster.start("running")
    cluster.start("waiting")
    cluster.join(boot_id="second")
    cluster.passes(limits.NODE_SILENT)
    cluster.make_ready(instance)
    assert where(cluster, "waiting") == [instance.instance_id]
