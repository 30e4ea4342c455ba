"""Prefill on one instance, decode on another: who may be linked, what requests do then, and how a link ends."""

import pytest
from test_domain_cluster import MIDDLE, SMALL, Cluster, of_type, types
from test_domain_ranks import link as measured

from exo.domain.effects import generate
from exo.domain.ids import InstanceId, NodeId, TaskId
from exo.domain.instance import Instance
from exo.domain.messages.commands import DeleteInstance, LimitIdleTime, LinkInstances, PlaceInstance, UnlinkInstances
from exo.domain.messages.events import Event, InstancePlaced, InstancesLinked, InstancesUnlinked
from exo.domain.messages.reports import DownloadSeen, GenerationEnded, LinksSeen, NodeLeft
from exo.domain.messages.tasks import GenerateTask
from exo.domain.prefill import PrefillAttempt, PrefillSource
from exo.domain.runner_status import Failed
from exo.domain.sampling import Timings, Usage


@pytest.fixture
def cluster() -> Cluster:
    """One node of 16 GB."""
    cluster = Cluster()
    cluster.join()
    return cluster


def linking(prefill: Instance, decode: Instance) -> LinkInstances:
    return LinkInstances(prefill_id=prefill.instance_id, decode_id=decode.instance_id)


def linked(cluster: Cluster) -> tuple[Instance, Instance]:
    """A prefill instance and a decode instance."""
    prefill, decode = cluster.place(), cluster.place()
    assert types(cluster.tell(linking(prefill, decode))) == ["InstancesLinked"]
    return prefill, decode


def task_of(cluster: Cluster, task: str) -> GenerateTask:
    published = generate(cluster.state, cluster.state.generations[TaskId(task)]).task
    assert isinstance(published, GenerateTask)
    return published


def where(cluster: Cluster, task: str) -> InstanceId | None:
    return cluster.state.generations[TaskId(task)].instance_id


def on_two_nodes() -> tuple[Cluster, Instance, Instance]:
    """A prefill instance on one node, and a decode instance on another. Nothing is known of links between them."""
    cluster = Cluster()
    placed: list[Instance] = []
    for name in ("a", "b"):
        node_id = cluster.join(name)
        events = cluster.tell(PlaceInstance(model_id=SMALL.model_id, node_ids=(node_id,)))
        placed.append(of_type(events, InstancePlaced)[0].instance)
        cluster.make_ready(placed[-1])
    return cluster, placed[0], placed[1]


def test_a_request_goes_to_the_decode_instance_and_names_the_other(cluster: Cluster) -> None:
    prefill, decode = linked(cluster)
    cluster.start("t1")
    cluster.start("t2")
    assert where(cluster, "t1") == where(cluster, "t2") == decode.instance_id
    assert task_of(cluster, "t1").prefill == PrefillSource(instance=prefill.instance_id, host="127.0.0.1")


def test_a_request_waits_for_the_decode_instance_rather_than_hold_up_prefill(cluster: Cluster) -> None:
    _, decode = linked(cluster)
    for task in ("t1", "t2", "t3"):
        cluster.start(task)
    assert where(cluster, "t3") is None
    cluster.ended("t1")
    assert where(cluster, "t3") == decode.instance_id


def test_a_prefill_instance_answers_by_itself_where_nobody_else_can(cluster: Cluster) -> None:
    prefill, decode = linked(cluster)
    cluster.runner_seen(decode, Failed(reason="out of memory"))
    cluster.start("t1")
    assert where(cluster, "t1") == prefill.instance_id
    assert task_of(cluster, "t1").prefill is None


def test_nobody_is_asked_to_prefill_who_is_not_ready(cluster: Cluster) -> None:
    prefill, _ = linked(cluster)
    cluster.runner_seen(prefill, Failed(reason="out of memory"))
    cluster.start("t1")
    assert task_of(cluster, "t1").prefill is None


def test_the_address_is_the_one_that_the_decode_node_measured() -> None:
    cluster, prefill, decode = on_two_nodes()
    assert "no measured link to host-a" in cluster.refusal(linking(prefill, decode)).reason
    measured(cluster, "b", "a")
    assert types(cluster.tell(linking(prefill, decode))) == ["InstancesLinked"]
    cluster.start("t1")
    assert task_of(cluster, "t1").prefill == PrefillSource(instance=prefill.instance_id, host="10.0.0.97")
    cluster.tell(LinksSeen(node_id=NodeId("b"), boot_id="boot", links=()))
    assert task_of(cluster, "t1").prefill is None


def test_a_link_ends_by_a_command(cluster: Cluster) -> None:
    prefill, decode = linked(cluster)
    (event,) = cluster.tell(UnlinkInstances(decode_id=decode.instance_id))
    assert event == InstancesUnlinked(
        prefill_id=prefill.instance_id, decode_id=decode.instance_id, reason="unlinked by a command"
    )
    refusal = cluster.refusal(UnlinkInstances(decode_id=decode.instance_id))
    assert refusal.code == "link_not_found"
    cluster.start("t1")
    assert where(cluster, "t1") == prefill.instance_id


@pytest.mark.parametrize("end", [0, 1])
def test_a_link_ends_with_either_instance(cluster: Cluster, end: int) -> None:
    gone = linked(cluster)[end]
    events = cluster.tell(DeleteInstance(instance_id=gone.instance_id))
    assert types(events) == ["InstancesUnlinked", "InstanceDeleted"]
    assert "one of them was unloaded" in of_type(events, InstancesUnlinked)[0].reason
    assert not cluster.state.prefill_links


@pytest.mark.parametrize("end", [0, 1])
def test_a_link_ends_with_an_instance_that_fails(cluster: Cluster, end: int) -> None:
    failing = linked(cluster)[end]
    events = cluster.runner_seen(failing, Failed(reason="not a model", permanent=True))
    assert types(events) == ["RunnerFailed", "InstancesUnlinked", "InstanceFailed"]


def test_a_link_outlives_a_runner_that_is_started_again(cluster: Cluster) -> None:
    prefill, decode = linked(cluster)
    cluster.runner_seen(prefill, Failed(reason="killed"))
    cluster.make_ready(prefill)
    cluster.start("t1")
    assert where(cluster, "t1") == decode.instance_id
    assert task_of(cluster, "t1").prefill is not None


def test_a_link_ends_once_where_both_instances_go_together() -> None:
    for both_go in (node_is_lost, download_fails, nobody_asks):
        cluster = Cluster()
        cluster.join()
        linked(cluster)
        assert types(both_go(cluster)).count("InstancesUnlinked") == 1
        assert not cluster.state.instances


def node_is_lost(cluster: Cluster) -> list[Event]:
    return cluster.passes(11, beats={NodeId("a"): cluster.now})


def download_fails(cluster: Cluster) -> list[Event]:
    cluster.tell(NodeLeft(node_id=NodeId("a"), boot_id="boot"))
    seen = DownloadSeen(node_id=NodeId("a"), model_id=SMALL.model_id, status="failed", reason="no space")
    return cluster.tell(seen)


def nobody_asks(cluster: Cluster) -> list[Event]:
    cluster.tell(LimitIdleTime(model_id=SMALL.model_id, seconds=0))
    return cluster.passes(1)


def test_two_instances_can_share_one_that_prefills(cluster: Cluster) -> None:
    prefill, first = linked(cluster)
    second = cluster.place()
    assert types(cluster.tell(linking(prefill, second))) == ["InstancesLinked"]
    events = cluster.tell(DeleteInstance(instance_id=prefill.instance_id))
    ended = {one.decode_id for one in of_type(events, InstancesUnlinked)}
    assert ended == {first.instance_id, second.instance_id}


def test_an_instance_is_at_one_end_only(cluster: Cluster) -> None:
    prefill, decode = linked(cluster)
    third = cluster.place()
    for command, advice in (
        (linking(prefill, decode), "unlink it first"),
        (linking(third, decode), "unlink it first"),
        (linking(third, prefill), "prefills for another instance"),
        (linking(decode, third), "unlink it first"),
        (linking(decode, prefill), "prefills for another instance"),
        (linking(third, third), "name two instances"),
    ):
        refusal = cluster.refusal(command)
        assert refusal.code == "cannot_link"
        assert advice in refusal.reason


def test_instances_that_are_not_there_are_refused(cluster: Cluster) -> None:
    one, gone = cluster.place(), InstanceId("gone")
    for command in (
        LinkInstances(prefill_id=gone, decode_id=one.instance_id),
        LinkInstances(prefill_id=one.instance_id, decode_id=gone),
        UnlinkInstances(decode_id=gone),
    ):
        assert cluster.refusal(command).code == "instance_not_found"


def test_both_hold_the_same_model(cluster: Cluster) -> None:
    refusal = cluster.refusal(linking(cluster.place(SMALL), cluster.place(MIDDLE)))
    assert "place the same model twice" in refusal.reason


def test_several_ranks_are_refused() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.join(name)
    measured(cluster, "a", "b")
    measured(cluster, "b", "a")
    events = cluster.tell(PlaceInstance(model_id=SMALL.model_id, min_nodes=2))
    spread = of_type(events, InstancePlaced)[0].instance
    for command in (linking(spread, cluster.place()), linking(cluster.place(), spread)):
        assert "spread over 2 ranks" in cluster.refusal(command).reason


def test_the_end_of_a_generation_says_who_prefilled(cluster: Cluster) -> None:
    prefill, _ = linked(cluster)
    cluster.start("t1")
    attempt = PrefillAttempt(instance_id=prefill.instance_id, tokens=899, asked_after=0.1, seconds=0.5)
    process = cluster.state.generations[TaskId("t1")].processes[0]
    report = GenerationEnded(
        task_id=TaskId("t1"),
        process=process,
        finish_reason="stop",
        usage=Usage(),
        timings=Timings(),
        prefill=attempt,
    )
    (event,) = cluster.tell(report)
    assert getattr(event, "prefill", None) == attempt


def test_a_link_that_is_logged_is_kept_in_state(cluster: Cluster) -> None:
    prefill, decode = linked(cluster)
    link = cluster.state.prefill_links[decode.instance_id]
    assert (link.prefill_id, link.since) == (prefill.instance_id, cluster.now)
    cluster.record(InstancesLinked(prefill_id=InstanceId("gone"), decode_id=prefill.instance_id))
    assert [*cluster.state.prefill_links] == [decode.instance_id]
