"""How much of a generation's time went by until its model was loaded, by State alone."""

from test_domain_cluster import SMALL, Cluster

from exo.api.generations.load_time import load_seconds
from exo.domain.ids import TaskId

TASK = TaskId("t1")


def test_a_model_that_is_loaded_costs_no_time() -> None:
    cluster = Cluster()
    cluster.join()
    cluster.place(SMALL)
    cluster.passes(5)
    cluster.start(TASK)
    assert load_seconds(cluster.state, TASK) == 0


def test_loading_lasts_until_the_instance_is_ready_and_waiting_for_a_slot_is_no_loading() -> None:
    cluster = Cluster()
    cluster.join()
    instance = cluster.place(SMALL, slots=1, ready=False)
    cluster.start(TASK)
    cluster.start("t2")
    cluster.passes(2.5)
    cluster.make_ready(instance)
    assert load_seconds(cluster.state, TASK) == 2.5
    assert load_seconds(cluster.state, TaskId("t2")) == 0
    cluster.passes(4)
    cluster.ended(TASK)
    assert load_seconds(cluster.state, TaskId("t2")) == 2.5


def test_one_that_is_over_has_no_time() -> None:
    assert load_seconds(Cluster().state, TASK) == 0
