"""One model over several nodes: what its ranks do together, and that none goes on without the others."""

import pytest
from test_domain_cluster import CARDS, LARGE, MIDDLE, SMALL, Cluster, card, of_type, types

from exo.domain import limits
from exo.domain.effects import PublishTask, effects, outstanding
from exo.domain.ids import NodeId, RunnerId, TaskId
from exo.domain.instance import Instance
from exo.domain.messages.commands import PlaceInstance
from exo.domain.messages.events import (
    Event,
    GenerationFinished,
    InstanceDeleted,
    InstanceFailed,
    InstancePlaced,
    NodeLinksChanged,
    RunnerFailed,
    RunnerJoining,
)
from exo.domain.messages.reports import DownloadSeen, LinksSeen, NodeLeft, RunnerStatusSeen
from exo.domain.messages.tasks import ConnectTask, message_id
from exo.domain.node import Link
from exo.domain.plan import Local, StartRunner, StopRunner, plan
from exo.domain.runner_status import Connecting, Failed, Joining, Loading, Ready, RunnerStatus, Stopped, Warming

A, B = NodeId("a"), NodeId("b")
PORTS = (17200, 17201)
UP: tuple[RunnerStatus, ...] = (Loading(), Warming(), Ready(tokens_per_second=12.5))


def link(cluster: Cluster, one: str, other: str) -> list[Event]:
    """A link from a node to another, as its only one."""
    found = Link(to=NodeId(other), kind="ethernet", address=f"10.0.0.{ord(other)}")
    return cluster.tell(LinksSeen(node_id=NodeId(one), boot_id="boot", links=(found,)))


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes of 32 GB that reach each other: the large model needs both."""
    cluster = Cluster()
    cluster.join("a", gigabytes=32)
    cluster.join("b", gigabytes=32)
    link(cluster, "a", "b")
    link(cluster, "b", "a")
    return cluster


def placed(cluster: Cluster) -> Instance:
    """The large model over both nodes."""
    return of_type(cluster.tell(PlaceInstance(model_id=LARGE.model_id, slots=2)), InstancePlaced)[0].instance


def seen(cluster: Cluster, instance: Instance, rank: int, status: RunnerStatus, process: str = "") -> list[Event]:
    runner = cluster.state.runners[instance.runner_ids[rank]]
    report = RunnerStatusSeen(runner_id=runner.runner_id, process=process or runner.process, status=status)
    return cluster.tell(report)


def joining(cluster: Cluster, instance: Instance, attempt: str = "1") -> None:
    for rank, port in enumerate(PORTS):
        seen(cluster, instance, rank, Connecting(), f"process-{rank}-{attempt}")
        seen(cluster, instance, rank, Joining(port=port))


def running(cluster: Cluster, attempt: str = "1") -> Instance:
    """The large model over both nodes, ready."""
    instance = next(iter(cluster.state.instances.values()), None) or placed(cluster)
    joining(cluster, instance, attempt)
    for status in UP:
        for rank in range(len(PORTS)):
            seen(cluster, instance, rank, status)
    return instance


def statuses(cluster: Cluster, instance: Instance) -> list[str]:
    return [cluster.state.runners[runner_id].status.type for runner_id in instance.runner_ids]


def connecting(cluster: Cluster) -> list[ConnectTask]:
    published = [one.task for one in outstanding(cluster.state) if isinstance(one, PublishTask)]
    return [task for task in published if isinstance(task, ConnectTask)]


def test_a_model_too_large_for_a_node_is_placed_over_two_when_it_is_asked_for(cluster: Cluster) -> None:
    events = cluster.start("t1", LARGE)
    (event,) = of_type(events, InstancePlaced)
    assert [(shard.node_id, shard.rank, shard.world_size) for shard in event.instance.shards] == [
        ("a", 0, 2),
        ("b", 1, 2),
    ]
    assert "host-a (2 layers, 22.00 GB) and host-b (2 layers, 22.00 GB) were chosen" in event.reason


def test_rank_0_has_the_last_layers_and_each_has_the_address_that_its_neighbour_measured(cluster: Cluster) -> None:
    first, second = placed(cluster).shards
    assert [(shard.start_layer, shard.end_layer) for shard in (first, second)] == [(2, 4), (0, 2)]
    assert (first.host, second.host) == ("10.0.0.97", "10.0.0.98")


def test_links_are_an_event_when_they_change_and_only_then(cluster: Cluster) -> None:
    assert link(cluster, "a", "b") == []
    (event,) = link(cluster, "a", "c")
    assert isinstance(event, NodeLinksChanged)
    assert cluster.state.nodes[A].links == event.links
    late = LinksSeen(node_id=A, boot_id="an earlier worker", links=())
    assert cluster.tell(late) == []


def test_a_request_waits_for_links_that_are_still_being_measured() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=32)
    cluster.join("b", gigabytes=32)
    assert types(cluster.start("t1", LARGE)) == ["GenerationQueued"]
    assert types(link(cluster, "a", "b")) == ["NodeLinksChanged"]
    assert types(link(cluster, "b", "a")) == ["NodeLinksChanged", "InstancePlaced"]


def test_a_request_for_nodes_that_are_not_linked_ends_once_links_would_be_known() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=32)
    cluster.join("b", gigabytes=32)
    cluster.start("t1", LARGE)
    (finished,) = cluster.passes(limits.LINKS_SETTLE)
    assert isinstance(finished, GenerationFinished)
    assert finished.code == "insufficient_memory"
    assert "host-a and host-b together can give 64.00 GB, but no measured links join them in a ring" in finished.error


def test_the_ranks_are_told_of_each_other_when_the_last_one_waits(cluster: Cluster) -> None:
    instance = placed(cluster)
    seen(cluster, instance, 0, Connecting(), "p0")
    seen(cluster, instance, 0, Joining(port=PORTS[0]))
    assert connecting(cluster) == []
    seen(cluster, instance, 1, Connecting(), "p1")
    (event,) = seen(cluster, instance, 1, Joining(port=PORTS[1]))
    assert event == RunnerJoining(runner_id=instance.runner_ids[1], port=PORTS[1])
    task = ConnectTask(processes=("p0", "p1"), addresses=("10.0.0.97:17200", "10.0.0.98:17201"))
    assert effects(cluster.state, event) == [PublishTask(instance.instance_id, task)]
    assert connecting(cluster) == [task]
    assert message_id(task) == "ConnectTask-p0-p1"


def test_a_generation_is_given_to_the_processes_of_all_ranks(cluster: Cluster) -> None:
    running(cluster)
    cluster.start("t1", LARGE)
    assert cluster.state.generations[TaskId("t1")].processes == ("process-0-1", "process-1-1")


def test_nothing_is_given_to_ranks_that_are_not_all_ready(cluster: Cluster) -> None:
    instance = placed(cluster)
    joining(cluster, instance)
    for status in UP:
        seen(cluster, instance, 0, status)
    assert types(cluster.start("t1", LARGE)) == ["GenerationQueued"]
    seen(cluster, instance, 1, Loading())
    seen(cluster, instance, 1, Warming())
    assert "GenerationDispatched" in types(seen(cluster, instance, 1, Ready(tokens_per_second=1)))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_takes_the_others_and_what_runs_with_it(cluster: Cluster, rank: int) -> None:
    instance = running(cluster)
    cluster.start("t1", LARGE)
    events = seen(cluster, instance, rank, Failed(reason="killed by SIGKILL"))
    reason = f"rank {rank} on host-{'ab'[rank]}: killed by SIGKILL"
    assert of_type(events, GenerationFinished)[0].error == f"the runner failed: {reason}"
    failed = of_type(events, RunnerFailed)
    assert [(one.runner_id, one.reason) for one in failed] == [(one, reason) for one in instance.runner_ids]
    assert {one.retry_at for one in failed} == {cluster.now + limits.BACKOFF_FIRST}
    assert statuses(cluster, instance) == ["failed", "failed"]


def test_a_rank_that_lost_another_is_not_named_for_it(cluster: Cluster) -> None:
    instance = running(cluster)
    events = seen(cluster, instance, 0, Failed(reason="the connection to it was lost", lost=(1,)))
    assert {one.reason for one in of_type(events, RunnerFailed)} == {"rank 1 on host-b: the connection to it was lost"}


def test_what_the_other_ranks_say_of_it_afterwards_is_no_news(cluster: Cluster) -> None:
    instance = running(cluster)
    seen(cluster, instance, 1, Failed(reason="killed by SIGKILL"))
    assert seen(cluster, instance, 0, Failed(reason="the connection to a peer was lost")) == []
    assert seen(cluster, instance, 0, Stopped()) == []


def test_each_node_stops_its_rank_and_starts_it_again_after_the_same_pause(cluster: Cluster) -> None:
    instance = running(cluster)
    seen(cluster, instance, 1, Failed(reason="killed by SIGKILL"))
    (stop,) = planned(cluster, A, {instance.runner_ids[0]: "process-0-1"})
    assert stop == StopRunner(instance.runner_ids[0], "rank 1 on host-b: killed by SIGKILL")
    assert planned(cluster, A) == planned(cluster, B) == []
    cluster.now += limits.BACKOFF_FIRST
    assert planned(cluster, A) == [StartRunner(instance, instance.shards[0])]
    assert planned(cluster, B) == [StartRunner(instance, instance.shards[1])]


def test_ranks_that_come_up_again_are_told_of_their_new_processes(cluster: Cluster) -> None:
    instance = running(cluster)
    seen(cluster, instance, 1, Failed(reason="killed by SIGKILL"))
    joining(cluster, instance, "2")
    (task,) = connecting(cluster)
    assert task.processes == ("process-0-2", "process-1-2")
    running(cluster, "3")


def test_ranks_that_fail_again_and_again_are_given_up_together(cluster: Cluster) -> None:
    instance = placed(cluster)
    cluster.start("t1", LARGE)
    for attempt in range(limits.RUNNER_FAILURES):
        assert instance.instance_id in cluster.state.instances
        joining(cluster, instance, str(attempt))
        events = seen(cluster, instance, attempt % 2, Failed(reason="out of memory"))
        cluster.now += limits.BACKOFF_MOST
    (given_up,) = of_type(events, InstanceFailed)
    assert given_up.reason == "rank 0 on host-a: out of memory (5 times in a row)"
    assert not cluster.state.runners
    assert [one.code for one in of_type(events, GenerationFinished)] == ["model_failed"]


def test_a_rank_that_cannot_ever_work_fails_the_instance_at_once(cluster: Cluster) -> None:
    instance = placed(cluster)
    seen(cluster, instance, 1, Connecting(), "p1")
    events = seen(cluster, instance, 1, Failed(reason="model.safetensors is cut off", permanent=True))
    assert "rank 1 on host-b: model.safetensors is cut off" in of_type(events, InstanceFailed)[0].reason


def test_who_waits_too_long_says_for_which_ranks(cluster: Cluster) -> None:
    instance = placed(cluster)
    seen(cluster, instance, 0, Connecting(), "p0")
    seen(cluster, instance, 0, Joining(port=PORTS[0]))
    assert cluster.passes(limits.RUNNER_JOINING) == []
    first, _ = of_type(cluster.passes(1), RunnerFailed)
    waited = "it waited for its peers for more than 60 s"
    assert first.reason == f"rank 0 on host-a: {waited}: rank 1 on host-b is waiting"


def test_ranks_that_do_not_reach_each_other_say_where(cluster: Cluster) -> None:
    joining(cluster, placed(cluster))
    first, _ = of_type(cluster.passes(limits.RUNNER_JOINING + 1), RunnerFailed)
    assert "all are there, and do not reach each other at 10.0.0.97, 10.0.0.98" in first.reason


def test_a_worker_that_starts_anew_breaks_the_group(cluster: Cluster) -> None:
    instance = running(cluster)
    cluster.start("t1", LARGE)
    cluster.join("b", gigabytes=32, boot_id="second")
    assert statuses(cluster, instance) == ["failed", "waiting"]
    assert not cluster.state.generations
    assert cluster.state.nodes[B].links == ()


def test_a_worker_that_leaves_breaks_the_group(cluster: Cluster) -> None:
    instance = running(cluster)
    events = cluster.tell(NodeLeft(node_id=B, boot_id="boot"))
    assert types(events) == ["RunnerStopped", "RunnerFailed"]
    assert statuses(cluster, instance) == ["failed", "stopped"]


def test_a_rank_that_is_stopped_breaks_the_group(cluster: Cluster) -> None:
    instance = running(cluster)
    cluster.start("t1", LARGE)
    events = seen(cluster, instance, 0, Stopped())
    assert types(events) == ["GenerationFinished", "RunnerStopped", "RunnerFailed"]
    assert statuses(cluster, instance) == ["stopped", "failed"]


def test_a_lost_node_takes_the_instance_and_what_waits_is_placed_where_there_is_room(cluster: Cluster) -> None:
    instance = running(cluster)
    for task in ("t1", "t2", "t3"):
        cluster.start(task, LARGE)
    cluster.join("c", gigabytes=64)
    events = cluster.passes(limits.NODE_SILENT + 1, {B: cluster.now})
    assert [one.instance_id for one in of_type(events, InstanceDeleted)] == [instance.instance_id]
    assert [(one.task_id, one.code) for one in of_type(events, GenerationFinished)] == [
        ("t1", "node_lost"),
        ("t2", "node_lost"),
    ]
    assert of_type(events, InstancePlaced)[0].instance.node_ids == ("c",)


def test_no_rank_is_started_before_the_model_is_on_the_disks_of_all() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=32)
    cluster.join("b", gigabytes=32, ready=(SMALL, MIDDLE))
    link(cluster, "a", "b")
    link(cluster, "b", "a")
    instance = placed(cluster)
    assert [shard.node_id for shard in instance.shards] == ["a", "b"]
    assert planned(cluster, A) == []
    cluster.tell(DownloadSeen(node_id=B, model_id=LARGE.model_id, status="finished"))
    assert planned(cluster, A) == [StartRunner(instance, instance.shards[0])]


def test_room_on_every_node_of_a_group_is_made_for_a_model_that_needs_them_all(cluster: Cluster) -> None:
    idle = cluster.place(MIDDLE)
    full = card("full", 50)
    for name in "ab":
        cluster.join(name, gigabytes=32, cards=(*CARDS, full), ready=(*CARDS, full))
    events = cluster.start("t1", full)
    assert [one.instance_id for one in of_type(events, InstanceDeleted)] == [idle.instance_id]
    (event,) = of_type(cluster.passes(1), InstancePlaced)
    assert set(event.instance.node_ids) == {A, B}


def planned(cluster: Cluster, node_id: NodeId, processes: dict[RunnerId, str] | None = None) -> list[object]:
    ready = frozenset(one.model_id for one in CARDS)
    return [*plan(node_id, cluster.state, Local(processes or {}, frozenset(), ready), cluster.now)]
