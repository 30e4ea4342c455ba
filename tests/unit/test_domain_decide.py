"""What each command and each report leads to."""

import pytest
from test_domain_cluster import GB, LARGE, SMALL, Cluster, node_seen, of_type, start, types

from exo.domain import limits
from exo.domain.decide.instances import card_of
from exo.domain.ids import InstanceId, ModelId, NodeId, RunnerId, TaskId
from exo.domain.messages.commands import CancelGeneration, DeleteInstance, PlaceInstance
from exo.domain.messages.events import (
    CancellationRequested,
    DownloadFailed,
    GenerationFinished,
    GenerationQueued,
    InstanceFailed,
    InstancePlaced,
    NodeChanged,
    NodeJoined,
    RunnerFailed,
    RunnerReady,
    RunnerStarted,
)
from exo.domain.messages.reports import DownloadSeen, NodeLeft, RunnerStatusSeen
from exo.domain.node import DamagedModel
from exo.domain.runner_status import Connecting, Failed, Loading, Ready, Stopped, Waiting, Warming
from exo.domain.sampling import Timings, Usage
from exo.domain.state import download_key
from exo.errors import Rejected


@pytest.fixture
def cluster() -> Cluster:
    """One node of 16 GB."""
    cluster = Cluster()
    cluster.join()
    return cluster


def cancel(task: str) -> CancelGeneration:
    return CancelGeneration(task_id=TaskId(task), reason="the client left")


# Commands


def test_a_placed_instance_is_as_the_command_asks(cluster: Cluster) -> None:
    (event,) = cluster.tell(PlaceInstance(model_id=SMALL.model_id, context=1000, slots=3))
    assert isinstance(event, InstancePlaced)
    assert (event.instance.context, event.instance.slots, event.instance.engine) == (1000, 3, "mlx")
    (shard,) = event.instance.shards
    assert (shard.start_layer, shard.end_layer, shard.rank, shard.world_size) == (0, SMALL.layers, 0, 1)
    assert cluster.runner_of(event.instance).status == Waiting()


def test_a_second_placement_adds_a_replica(cluster: Cluster) -> None:
    first, second = cluster.place(), cluster.place()
    assert first.instance_id != second.instance_id
    assert set(cluster.state.instances) == {first.instance_id, second.instance_id}


def test_a_placement_only_if_absent_is_refused_where_there_is_one(cluster: Cluster) -> None:
    placed = cluster.place(ready=False)
    refused = cluster.refusal(PlaceInstance(model_id=SMALL.model_id, only_if_absent=True))
    assert refused.code == "already_placed"
    assert placed.instance_id in refused.reason


def test_a_model_that_no_node_knows_cannot_be_placed_or_asked(cluster: Cluster) -> None:
    unknown = ModelId("maker/unknown")
    assert cluster.refusal(PlaceInstance(model_id=unknown)).code == "model_not_found"
    refused = cluster.refusal(start("t1").model_copy(update={"model_id": unknown}))
    assert refused.code == "model_not_found"
    assert "maker/unknown" in refused.reason


def test_a_model_too_large_is_refused_with_the_figures(cluster: Cluster) -> None:
    refused = cluster.refusal(PlaceInstance(model_id=LARGE.model_id))
    assert refused.code == "insufficient_memory"
    assert "44.00 GB" in refused.reason
    assert "16.00 GB" in refused.reason


def test_deleting_an_instance_cancels_what_runs_on_it_and_waits_for_it(cluster: Cluster) -> None:
    instance = cluster.place(slots=1)
    cluster.start("running")
    cluster.start("waiting")
    events = cluster.tell(DeleteInstance(instance_id=instance.instance_id))
    finished = of_type(events, GenerationFinished)
    assert [(one.task_id, one.finish_reason, one.code) for one in finished] == [
        ("running", "cancelled", "instance_deleted"),
        ("waiting", "cancelled", "instance_deleted"),
    ]
    assert types(events)[-1] == "InstanceDeleted"
    assert not cluster.state.instances
    assert not cluster.state.runners


def test_deleting_one_of_two_replicas_leaves_the_queue_to_the_other(cluster: Cluster) -> None:
    first, second = cluster.place(slots=1), cluster.place(slots=1)
    for task in ("t1", "t2", "t3"):
        cluster.start(task)
    events = cluster.tell(DeleteInstance(instance_id=first.instance_id))
    assert [one.task_id for one in of_type(events, GenerationFinished)] == ["t1"]
    assert set(cluster.state.generations) == {"t2", "t3"}
    cluster.ended("t2")
    assert cluster.state.generations[TaskId("t3")].instance_id == second.instance_id


def test_an_unknown_instance_cannot_be_deleted(cluster: Cluster) -> None:
    assert cluster.refusal(DeleteInstance(instance_id=InstanceId("none"))).code == "instance_not_found"


def test_a_request_is_queued_with_what_it_said(cluster: Cluster) -> None:
    events = cluster.start("t1", prompt="Hello")
    queued = of_type(events, GenerationQueued)[0]
    assert (queued.key, queued.reply_to, queued.estimated_tokens, queued.prompt) == ("anna", "api", 5, "Hello")
    assert cluster.state.generations[TaskId("t1")].log_output


@pytest.mark.parametrize("over", [False, True])
def test_a_task_id_is_used_once(cluster: Cluster, over: bool) -> None:
    cluster.place()
    cluster.start("t1")
    if over:
        cluster.ended("t1")
    assert cluster.refusal(start("t1")).code == "duplicate_task"


def test_a_model_that_just_failed_is_refused_at_once_and_later_tried_again(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    cluster.runner_seen(instance, Connecting(), "p1")
    cluster.runner_seen(instance, Failed(reason="weights are cut off", permanent=True))
    refused = cluster.refusal(start("t1"))
    assert refused.code == "model_failed"
    assert "weights are cut off" in refused.reason
    cluster.passes(limits.FAILURE_REMEMBERED + 1)
    assert types(cluster.start("t2")) == ["GenerationQueued", "InstancePlaced"]


def test_a_queued_request_is_cancelled_at_once(cluster: Cluster) -> None:
    cluster.start("t1")
    (event,) = cluster.tell(cancel("t1"))
    assert isinstance(event, GenerationFinished)
    assert (event.finish_reason, event.error) == ("cancelled", "the client left")


def test_a_running_request_is_asked_to_stop_and_ends_when_the_runner_says_so(cluster: Cluster) -> None:
    cluster.place(slots=1)
    cluster.start("t1")
    cluster.start("t2")
    (event,) = cluster.tell(cancel("t1"))
    assert event == CancellationRequested(task_id=TaskId("t1"), reason="the client left")
    assert cluster.refusal(cancel("t1")).code == "already_cancelling"
    assert types(cluster.ended("t1", "cancelled")) == ["GenerationFinished", "GenerationDispatched"]


def test_what_is_over_or_never_was_cannot_be_cancelled(cluster: Cluster) -> None:
    cluster.place()
    cluster.start("t1")
    cluster.ended("t1")
    assert cluster.refusal(cancel("t1")).code == "generation_not_found"
    assert cluster.refusal(cancel("never")).code == "generation_not_found"


# Reports about nodes


def test_a_first_report_joins_and_the_same_again_says_nothing() -> None:
    cluster = Cluster()
    (event,) = cluster.tell(node_seen())
    assert isinstance(event, NodeJoined)
    assert cluster.tell(node_seen()) == []


def test_free_memory_is_news_only_when_it_moves_by_more_than_a_twentieth(cluster: Cluster) -> None:
    little = node_seen().model_copy(update={"available_bytes": int(15.3 * GB)})
    much = node_seen().model_copy(update={"available_bytes": int(15.1 * GB)})
    assert cluster.tell(little) == []
    (event,) = cluster.tell(much)
    assert isinstance(event, NodeChanged)
    assert cluster.state.nodes[NodeId("a")].available_bytes == int(15.1 * GB)


def test_a_damaged_model_is_news_and_a_request_for_it_is_refused_with_the_reason(cluster: Cluster) -> None:
    damaged = DamagedModel(model_id=ModelId("b/trunc"), reason="w has 3 bytes of 9: fetch the model again")
    seen = node_seen().model_copy(update={"damaged": (damaged,)})
    assert types(cluster.tell(seen)) == ["NodeChanged"]
    assert cluster.tell(seen) == []
    with pytest.raises(Rejected, match=r"'b/trunc' is damaged on node .*: w has 3 bytes of 9") as caught:
        card_of(cluster.state, damaged.model_id)
    assert caught.value.code == "model_damaged"
    assert types(cluster.tell(node_seen())) == ["NodeChanged"]
    assert cluster.state.nodes[NodeId("a")].damaged == ()


def test_another_model_on_the_disk_is_news_and_another_order_is_none(cluster: Cluster) -> None:
    seen = node_seen()
    assert cluster.tell(seen.model_copy(update={"holdings": seen.holdings[::-1]})) == []
    assert types(cluster.tell(node_seen(ready=()))) == ["NodeChanged"]
    assert cluster.state.nodes[NodeId("a")].holdings[SMALL.model_id].status == "obtainable"


def test_a_restarted_worker_ends_what_ran_and_its_runners_wait_again(cluster: Cluster) -> None:
    instance = cluster.place(slots=1)
    cluster.start("running")
    cluster.start("waiting")
    events = cluster.tell(node_seen(boot_id="second"))
    assert types(events) == ["GenerationFinished", "NodeJoined"]
    assert of_type(events, GenerationFinished)[0].code == "runner_failed"
    assert cluster.runner_of(instance).status == Waiting()
    assert cluster.runner_of(instance).process == ""
    assert set(cluster.state.generations) == {"waiting"}


def test_a_goodbye_ends_what_ran_and_stops_the_runners_and_the_instances_stay(cluster: Cluster) -> None:
    instance = cluster.place(slots=1)
    cluster.start("running")
    cluster.start("waiting")
    events = cluster.tell(NodeLeft(node_id=NodeId("a"), boot_id="boot"))
    assert types(events) == ["GenerationFinished", "RunnerStopped"]
    assert of_type(events, GenerationFinished)[0].code == "node_lost"
    assert "host-a was stopped" in of_type(events, GenerationFinished)[0].error
    assert cluster.runner_of(instance).status == Stopped()
    assert set(cluster.state.generations) == {"waiting"}
    assert cluster.tell(NodeLeft(node_id=NodeId("a"), boot_id="boot")) == []


def test_who_said_goodbye_and_stays_away_is_lost_with_its_instances(cluster: Cluster) -> None:
    cluster.place()
    cluster.tell(NodeLeft(node_id=NodeId("a"), boot_id="boot"))
    events = cluster.passes(limits.NODE_SILENT + 1, {NodeId("a"): cluster.now})
    assert types(events) == ["InstanceDeleted", "NodeLost"]


def test_who_said_goodbye_and_comes_back_has_its_instances(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.tell(NodeLeft(node_id=NodeId("a"), boot_id="boot"))
    cluster.tell(node_seen(boot_id="second"))
    assert instance.instance_id in cluster.state.instances
    assert cluster.runner_of(instance).status == Waiting()


def test_more_context_than_the_model_has_is_refused(cluster: Cluster) -> None:
    refused = cluster.refusal(PlaceInstance(model_id=SMALL.model_id, context=SMALL.context + 1))
    assert refused.code == "context_too_large"
    assert f"{SMALL.context} tokens, less than {SMALL.context + 1}" in refused.reason


def test_a_goodbye_of_an_earlier_worker_or_a_stranger_says_nothing(cluster: Cluster) -> None:
    assert cluster.tell(NodeLeft(node_id=NodeId("a"), boot_id="earlier")) == []
    assert cluster.tell(NodeLeft(node_id=NodeId("b"), boot_id="boot")) == []


# Reports about downloads


def download(status: str, node: str = "a") -> DownloadSeen:
    return DownloadSeen.model_validate(
        {
            "node_id": node,
            "model_id": SMALL.model_id,
            "status": status,
            "reason": "no space" if status == "failed" else "",
        }
    )


def test_a_download_is_in_state_until_the_model_is_there() -> None:
    cluster = Cluster()
    node_id = cluster.join(ready=())
    assert types(cluster.tell(download("started"))) == ["DownloadStarted"]
    assert cluster.state.downloads[download_key(node_id, SMALL.model_id)].status == "running"
    assert types(cluster.tell(download("finished"))) == ["DownloadFinished"]
    assert not cluster.state.downloads
    assert cluster.state.nodes[node_id].holdings[SMALL.model_id].status == "ready"


def test_a_failed_download_fails_what_waits_for_it_and_nothing_else(cluster: Cluster) -> None:
    ready, waiting = cluster.place(), cluster.place(ready=False)
    events = cluster.tell(download("failed"))
    assert of_type(events, DownloadFailed)[0].reason == "no space"
    assert [one.instance_id for one in of_type(events, InstanceFailed)] == [waiting.instance_id]
    assert set(cluster.state.instances) == {ready.instance_id}


def test_an_abandoned_download_is_over_and_fails_nothing(cluster: Cluster) -> None:
    waiting = cluster.place(ready=False)
    assert types(cluster.tell(download("abandoned"))) == ["DownloadFailed"]
    assert waiting.instance_id in cluster.state.instances


def test_a_download_on_a_node_that_left_says_nothing(cluster: Cluster) -> None:
    assert cluster.tell(download("failed", node="b")) == []


# Reports about runners


def test_a_runner_goes_its_way_to_ready(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    assert cluster.runner_seen(instance, Connecting(), "p1") == [
        RunnerStarted(runner_id=instance.runner_ids[0], process="p1")
    ]
    assert types(cluster.runner_seen(instance, Loading())) == ["RunnerLoading"]
    assert types(cluster.runner_seen(instance, Warming())) == ["RunnerWarming"]
    assert cluster.runner_seen(instance, Ready(tokens_per_second=9)) == [
        RunnerReady(runner_id=instance.runner_ids[0], tokens_per_second=9)
    ]


@pytest.mark.parametrize("late", [Waiting(), Connecting(), Loading(), Warming(), Ready(tokens_per_second=1)])
def test_a_ready_runner_does_not_go_back(cluster: Cluster, late: Waiting | Connecting | Loading | Warming) -> None:
    instance = cluster.place()
    assert cluster.runner_seen(instance, late) == []


@pytest.mark.parametrize("status", [Loading(), Ready(tokens_per_second=1), Failed(reason="x"), Stopped()])
def test_what_an_earlier_process_says_is_dropped(cluster: Cluster, status: Loading | Failed | Stopped) -> None:
    instance = cluster.place()
    assert cluster.runner_seen(instance, status, "earlier") == []


def test_a_second_process_of_a_living_runner_is_dropped(cluster: Cluster) -> None:
    instance = cluster.place()
    assert cluster.runner_seen(instance, Connecting(), "another") == []


def test_what_is_said_of_an_unknown_runner_is_dropped(cluster: Cluster) -> None:
    assert cluster.tell(RunnerStatusSeen(runner_id=RunnerId("none"), process="p", status=Failed(reason="x"))) == []


def test_a_failed_runner_ends_what_ran_on_it_and_may_start_again_after_a_pause(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.start("t1")
    events = cluster.runner_seen(instance, Failed(reason="killed by SIGKILL"))
    assert types(events) == ["GenerationFinished", "RunnerFailed"]
    finished, failed = of_type(events, GenerationFinished)[0], of_type(events, RunnerFailed)[0]
    assert (finished.finish_reason, finished.code) == ("error", "runner_failed")
    assert "SIGKILL" in finished.error
    assert failed.retry_at == cluster.now + limits.BACKOFF_FIRST
    assert types(cluster.runner_seen(instance, Connecting(), "p2")) == ["RunnerStarted"]


def test_pauses_double_up_to_a_bound_and_the_fifth_failure_is_the_last(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    pauses: list[float] = []
    for number in range(1, limits.RUNNER_FAILURES + 1):
        cluster.runner_seen(instance, Connecting(), f"p{number}")
        events = cluster.runner_seen(instance, Failed(reason="it crashed"))
        pauses.append(of_type(events, RunnerFailed)[0].retry_at - cluster.now)
    assert pauses == [1, 2, 4, 8, 16]
    assert of_type(events, InstanceFailed)[0].reason == "it crashed (5 times in a row)"
    assert not cluster.state.instances
    assert limits.backoff(100) == limits.BACKOFF_MOST


def test_a_runner_that_was_ready_counts_from_the_first_failure_again(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    for number in range(limits.RUNNER_FAILURES - 1):
        cluster.runner_seen(instance, Connecting(), f"p{number}")
        cluster.runner_seen(instance, Failed(reason="it crashed"))
    cluster.make_ready(instance)
    assert cluster.runner_of(instance).failures == 0
    events = cluster.runner_seen(instance, Failed(reason="it crashed"))
    assert of_type(events, RunnerFailed)[0].retry_at == cluster.now + limits.BACKOFF_FIRST


def test_a_permanent_failure_is_the_last_at_once(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    cluster.start("t1")
    cluster.runner_seen(instance, Connecting(), "p1")
    events = cluster.runner_seen(instance, Failed(reason="no such weights", permanent=True))
    assert types(events) == ["RunnerFailed", "InstanceFailed", "GenerationFinished"]
    assert of_type(events, GenerationFinished)[0].code == "model_failed"
    assert cluster.state.failures[SMALL.model_id].reason == "no such weights"


def test_a_stopped_runner_ends_what_ran_on_it(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.start("t1")
    assert types(cluster.runner_seen(instance, Stopped())) == ["GenerationFinished", "RunnerStopped"]
    assert cluster.runner_of(instance).status == Stopped()
    assert cluster.runner_of(instance).failures == 0


# Reports about generations


def test_the_end_of_a_generation_keeps_its_figures(cluster: Cluster) -> None:
    cluster.place()
    cluster.start("t1")
    cluster.now += 2
    cluster.ended("t1", "length")
    (ended,) = cluster.state.ended
    assert (ended.finish_reason, ended.ended_at - ended.queued_at) == ("length", 2)
    assert ended.usage == Usage(prompt_tokens=3, completion_tokens=4)
    assert ended.timings == Timings(wait=0.1, prefill=0.2, decode=0.3)


def test_an_end_that_another_process_reports_or_that_comes_twice_is_dropped(cluster: Cluster) -> None:
    cluster.place()
    cluster.start("t1")
    process = cluster.state.generations[TaskId("t1")].processes[0]
    assert cluster.ended("t1", process="earlier") == []
    assert cluster.ended("t1", process=process) != []
    assert cluster.ended("t1", process=process) == []


def test_the_end_of_a_queued_generation_is_dropped(cluster: Cluster) -> None:
    cluster.start("t1")
    assert cluster.ended("t1", process="") == []
