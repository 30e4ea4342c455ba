"""Models that somebody wants off the disks of nodes."""

import pytest
from test_domain_cluster import LARGE, MIDDLE, SMALL, Cluster, of_type, types

from exo.domain import limits
from exo.domain.ids import ApiId, ModelId, NodeId, TaskId
from exo.domain.messages.commands import DeleteInstance, PlaceInstance, RemoveModel, StartDownload
from exo.domain.messages.events import CommandRejected, GenerationQueued, RemovalFailed
from exo.domain.messages.reports import DownloadSeen, NodeSeen, RemovalSeen
from exo.domain.model_card import ModelCard
from exo.domain.node import DamagedModel, Holding
from exo.domain.plan import Action, DeleteModel, Local, PrepareModel, StartRunner, plan
from exo.domain.state import State, is_leaving, on_disk

A, B = NodeId("a"), NodeId("b")
REMOVE = RemoveModel(model_id=SMALL.model_id)
OBTAINABLE = Holding(card=SMALL, status="obtainable")
REMOVED = RemovalSeen(node_id=A, model_id=SMALL.model_id, status="removed", holding=OBTAINABLE)
FAILED = RemovalSeen(node_id=A, model_id=SMALL.model_id, status="failed", reason="it is yours")


@pytest.fixture
def cluster() -> Cluster:
    """One node that has the small model, and can get the middle one."""
    cluster = Cluster()
    cluster.join(cards=(SMALL, MIDDLE), ready=(SMALL,))
    return cluster


def planned(
    cluster: Cluster,
    *,
    preparing: frozenset[ModelId] = frozenset(),
    ready: frozenset[ModelId] = frozenset({SMALL.model_id}),
    deleting: frozenset[ModelId] = frozenset(),
) -> list[Action]:
    return plan(A, cluster.state, Local({}, preparing, ready, deleting), cluster.now)


def removals(cluster: Cluster) -> set[str]:
    return set(cluster.state.nodes[A].removals)


def test_what_is_to_go_is_deleted_once_and_then_obtainable(cluster: Cluster) -> None:
    assert types(cluster.tell(REMOVE)) == ["RemovalRequested"]
    assert State.model_validate_json(cluster.state.model_dump_json()) == cluster.state
    assert planned(cluster) == [DeleteModel(SMALL.model_id)]
    assert planned(cluster, deleting=frozenset({SMALL.model_id})) == []
    assert types(cluster.tell(REMOVED)) == ["ModelRemoved"]
    assert (removals(cluster), on_disk(cluster.state.nodes[A])) == (set(), set())
    assert cluster.state.nodes[A].holdings[SMALL.model_id] == OBTAINABLE
    assert planned(cluster) == []
    assert cluster.tell(REMOVED) == []


def test_what_cannot_be_had_again_is_not_known_any_more(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    cluster.tell(REMOVED.replaced({"holding": None}))
    assert set(cluster.state.nodes[A].holdings) == {MIDDLE.model_id}


def test_it_leaves_every_node_that_has_it(cluster: Cluster) -> None:
    cluster.join("b", cards=(SMALL,), ready=(SMALL,))
    cluster.join("c", cards=(SMALL,), ready=())
    assert types(cluster.tell(REMOVE)) == ["RemovalRequested"] * 2
    cluster.tell(REMOVED)
    assert is_leaving(cluster.state, SMALL.model_id)
    cluster.tell(REMOVED.replaced({"node_id": B}))
    assert not is_leaving(cluster.state, SMALL.model_id)


def test_a_damaged_model_can_go_too(cluster: Cluster) -> None:
    seen = {"node_id": A, "boot_id": "boot", "facts": cluster.state.nodes[A].facts, "available_bytes": 0}
    damaged = (DamagedModel(model_id=SMALL.model_id, reason="a file is short"),)
    cluster.tell(NodeSeen.model_validate({**seen, "holdings": (), "damaged": damaged}))
    assert types(cluster.tell(REMOVE)) == ["RemovalRequested"]
    cluster.tell(REMOVED)
    assert cluster.state.nodes[A].damaged == ()


def test_a_failure_ends_it_and_it_can_be_asked_for_again(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    (failed,) = of_type(cluster.tell(FAILED), RemovalFailed)
    assert failed.reason == "it is yours"
    assert (removals(cluster), on_disk(cluster.state.nodes[A])) == (set(), {SMALL.model_id})
    assert types(cluster.tell(REMOVE)) == ["RemovalRequested"]


def test_a_worker_that_says_nothing_has_a_deadline(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    assert cluster.passes(limits.REMOVING) == []
    (failed,) = of_type(cluster.passes(1), RemovalFailed)
    assert "did not say" in failed.reason
    assert removals(cluster) == set()
    assert cluster.tell(REMOVED) == []


def test_it_outlives_a_restart_of_the_worker_but_not_the_node(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    cluster.join(cards=(SMALL, MIDDLE), ready=(SMALL,), boot_id="another")
    assert planned(cluster) == [DeleteModel(SMALL.model_id)]
    events = cluster.passes(limits.NODE_SILENT + 1, {A: cluster.now})
    assert types(events) == ["RemovalFailed", "NodeLost"]
    assert cluster.tell(FAILED) == []


def test_an_instance_keeps_its_model_until_it_is_unloaded(cluster: Cluster) -> None:
    instance = cluster.place(ready=False)
    refusal = cluster.refusal(REMOVE)
    assert (refusal.code, f"{instance.instance_id} has it: unload it first" in refusal.reason) == ("model_in_use", True)
    cluster.tell(DeleteInstance(instance_id=instance.instance_id))
    assert types(cluster.tell(REMOVE)) == ["RemovalRequested"]


def test_what_requests_wait_for_is_kept(cluster: Cluster) -> None:
    asked = {"task_id": TaskId("t"), "model_id": SMALL.model_id, "reply_to": ApiId("api")}
    cluster.record(GenerationQueued.model_validate({**asked, "estimated_tokens": 1, "key": "k"}))
    (refusal,) = of_type(cluster.tell(REMOVE), CommandRejected)
    assert (refusal.code, "requests wait for it" in refusal.reason) == ("model_in_use", True)


def test_what_is_on_its_way_is_kept_until_that_is_over(cluster: Cluster) -> None:
    cluster.join("b", cards=(SMALL,), ready=())
    cluster.tell(StartDownload(node_id=B, model_id=SMALL.model_id))
    refusal = cluster.refusal(REMOVE)
    assert (refusal.code, "on its way to host-b" in refusal.reason) == ("model_in_use", True), refusal
    failed = {"node_id": B, "model_id": SMALL.model_id, "status": "failed", "reason": "no space"}
    cluster.tell(DownloadSeen.model_validate(failed))
    assert types(cluster.tell(REMOVE)) == ["RemovalRequested"]


@pytest.mark.parametrize("model", [MIDDLE, LARGE])
def test_what_is_on_no_disk_is_not_found(cluster: Cluster, model: ModelCard) -> None:
    assert cluster.refusal(RemoveModel(model_id=model.model_id)).code == "model_not_found"


def test_it_is_not_asked_for_twice(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    assert cluster.refusal(REMOVE).code == "already_requested"


def test_whoever_needs_it_later_has_it_fetched_after_it_was_deleted(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    cluster.tell(PlaceInstance(model_id=SMALL.model_id))
    assert planned(cluster) == [DeleteModel(SMALL.model_id)]
    assert planned(cluster, deleting=frozenset({SMALL.model_id})) == []
    cluster.tell(REMOVED)
    assert planned(cluster, ready=frozenset(), deleting=frozenset({SMALL.model_id})) == []
    assert planned(cluster, ready=frozenset()) == [PrepareModel(SMALL)]


def test_a_failed_removal_lets_its_runner_start(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    cluster.tell(PlaceInstance(model_id=SMALL.model_id))
    cluster.tell(FAILED)
    (action,) = planned(cluster)
    assert isinstance(action, StartRunner)


def test_what_is_still_being_prepared_is_deleted_afterwards(cluster: Cluster) -> None:
    cluster.tell(REMOVE)
    assert DeleteModel(SMALL.model_id) not in planned(cluster, preparing=frozenset({SMALL.model_id}))
