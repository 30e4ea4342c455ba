"""What time alone brings about."""

import pytest
from test_domain_cluster import SMALL, STARTING, Cluster, of_type, start, types

from exo.domain import limits
from exo.domain.ids import NodeId, TaskId
from exo.domain.messages.commands import CancelGeneration
from exo.domain.messages.events import (
    CancellationRequested,
    GenerationFinished,
    InstanceDeleted,
    InstanceFailed,
    NodeLost,
    RunnerFailed,
)
from exo.domain.runner_status import Connecting

A, B = NodeId("a"), NodeId("b")


@pytest.fixture
def cluster() -> Cluster:
    """One node of 16 GB."""
    cluster = Cluster()
    cluster.join()
    return cluster


def test_nothing_is_due_on_an_idle_cluster(cluster: Cluster) -> None:
    cluster.place()
    for _ in range(10):
        assert cluster.passes(3600) == []


def test_a_silent_node_is_lost_with_its_instances(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.start("t1")
    events = cluster.passes(limits.NODE_SILENT + 1, {A: cluster.now})
    assert of_type(events, NodeLost) == [NodeLost(node_id=A, reason="no sign of life for 10 s")]
    assert [one.instance_id for one in of_type(events, InstanceDeleted)] == [instance.instance_id]
    assert [one.code for one in of_type(events, GenerationFinished)] == ["node_lost"]


def test_a_node_that_missed_fewer_beats_than_the_deadline_stays(cluster: Cluster) -> None:
    assert cluster.passes(limits.NODE_SILENT - 0.1, {A: cluster.now}) == []


def test_a_node_without_a_beat_since_the_master_took_over_is_given_the_benefit_of_the_doubt(cluster: Cluster) -> None:
    cluster.join("b")
    events = cluster.passes(3600, {A: cluster.now})
    assert [one.node_id for one in of_type(events, NodeLost)] == [A]
    assert set(cluster.state.nodes) == {B}


def test_two_silent_nodes_are_lost_together(cluster: Cluster) -> None:
    cluster.join("b")
    cluster.place()
    cluster.place()
    events = cluster.passes(60, {A: cluster.now, B: cluster.now})
    assert [one.node_id for one in of_type(events, NodeLost)] == [A, B]
    assert not cluster.state.instances


@pytest.mark.parametrize(
    ("steps", "name", "allowed"),
    [
        (0, "waiting", limits.RUNNER_WAITING),
        (1, "connecting", limits.RUNNER_CONNECTING),
        (2, "loading", limits.RUNNER_LOADING),
        (3, "warming", limits.RUNNER_WARMING),
    ],
)
def test_each_state_of_a_starting_runner_has_a_deadline(
    cluster: Cluster, steps: int, name: str, allowed: float
) -> None:
    instance = cluster.place(ready=False)
    for status in STARTING[:steps]:
        cluster.runner_seen(instance, status, "p1")
    assert cluster.passes(allowed) == []
    (failed,) = cluster.passes(1)
    assert isinstance(failed, RunnerFailed)
    assert failed.reason == f"the runner was {name} for more than {allowed:.0f} s"


def test_a_runner_that_overruns_its_deadline_again_and_again_is_given_up(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    for number in range(limits.RUNNER_FAILURES):
        cluster.runner_seen(instance, Connecting(), f"p{number}")
        events = cluster.passes(limits.RUNNER_CONNECTING + 1)
    assert [one.instance_id for one in of_type(events, InstanceFailed)] == [instance.instance_id]


def test_several_runners_overdue_at_once_are_all_dealt_with_one_a_look(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.runner_seen(cluster.place(ready=False), Connecting(), cluster.new_id())
    assert len(of_type(cluster.passes(limits.RUNNER_CONNECTING + 1), RunnerFailed)) == 1
    assert len(of_type(cluster.passes(1), RunnerFailed)) == 1
    assert cluster.passes(1) == []


def test_a_request_that_waits_too_long_ends_and_says_so(cluster: Cluster) -> None:
    cluster.place(slots=1)
    cluster.start("running")
    cluster.start("waiting")
    assert cluster.passes(limits.QUEUED) == []
    (finished,) = cluster.passes(1)
    assert isinstance(finished, GenerationFinished)
    assert (finished.task_id, finished.finish_reason, finished.code) == ("waiting", "error", "queue_timeout")
    assert "maker/small" in finished.error


def test_a_generation_that_runs_too_long_is_cancelled(cluster: Cluster) -> None:
    cluster.place()
    cluster.start("t1")
    assert cluster.passes(limits.RUNNING) == []
    (event,) = cluster.passes(1)
    assert isinstance(event, CancellationRequested)
    assert cluster.passes(1) == []


def test_a_cancellation_that_no_runner_confirms_frees_the_slot(cluster: Cluster) -> None:
    cluster.place(slots=1)
    cluster.start("t1")
    cluster.start("t2")
    cluster.tell(CancelGeneration(task_id=TaskId("t1"), reason="the client left"))
    assert cluster.passes(limits.CANCELLING) == []
    events = cluster.passes(1)
    assert types(events) == ["GenerationFinished", "GenerationDispatched"]
    assert of_type(events, GenerationFinished)[0].finish_reason == "cancelled"


def test_what_needs_a_reader_is_cancelled_when_it_has_had_none_for_a_while(cluster: Cluster) -> None:
    cluster.place(slots=1)
    for task in ("running", "queued"):
        cluster.tell(start(task).replaced({"needs_reader": True}))
    read = {TaskId("running"): cluster.now, TaskId("queued"): cluster.now}
    assert cluster.passes(limits.UNREAD, read=read) == []
    running, queued = cluster.passes(1, read=read)
    assert isinstance(running, CancellationRequested)
    assert isinstance(queued, GenerationFinished)
    assert (running.task_id, queued.task_id) == ("running", "queued")
    reason = "the API process that asked is gone, and nobody has read it for 20 s"
    assert [running.reason, queued.error, queued.finish_reason] == [reason, reason, "cancelled"]
    assert cluster.passes(1, read=read) == []


def test_what_is_read_or_needs_no_reader_or_was_just_asked_for_goes_on(cluster: Cluster) -> None:
    cluster.place(slots=4)
    long_ago = cluster.now
    cluster.start("background")
    cluster.tell(start("read").replaced({"needs_reader": True}))
    cluster.tell(start("nobody-told-of-it").replaced({"needs_reader": True}))
    assert cluster.passes(limits.UNREAD) == []
    cluster.tell(start("young").replaced({"needs_reader": True}))
    read = {TaskId("background"): long_ago, TaskId("young"): long_ago, TaskId("read"): cluster.now}
    assert cluster.passes(limits.UNREAD, read=read) == []


def test_what_was_not_dispatched_with_its_message_is_dispatched_by_the_next_look(cluster: Cluster) -> None:
    cluster.place()
    queued = cluster.start("t1")[0]
    other = Cluster()
    other.join()
    other.place()
    other.record(queued)
    assert types(other.passes(1)) == ["GenerationDispatched"]


def test_a_failure_is_forgotten_and_the_model_placed_again_for_whoever_asks(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    for number in range(limits.RUNNER_FAILURES):
        cluster.runner_seen(instance, Connecting(), f"p{number}")
        cluster.passes(limits.RUNNER_CONNECTING + 1)
    assert SMALL.model_id in cluster.state.failures
    cluster.passes(limits.FAILURE_REMEMBERED + 1)
    cluster.start("t1")
    (again,) = cluster.state.instances.values()
    cluster.make_ready(again)
    assert SMALL.model_id not in cluster.state.failures
