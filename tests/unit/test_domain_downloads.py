"""Models that somebody wants on a node, without an instance that needs them there."""

import pytest
from test_domain_cluster import LARGE, MIDDLE, SMALL, Cluster, types

from exo.domain import limits
from exo.domain.ids import ModelId, NodeId
from exo.domain.messages.commands import CancelDownload, StartDownload
from exo.domain.messages.reports import DownloadSeen
from exo.domain.plan import AbandonModel, Action, Local, PrepareModel, plan
from exo.domain.state import Download, download_key, requested_on

A = NodeId("a")
START = StartDownload(node_id=A, model_id=MIDDLE.model_id)
CANCEL = CancelDownload(node_id=A, model_id=MIDDLE.model_id)


@pytest.fixture
def cluster() -> Cluster:
    """One node that has the small model, and can get the middle one."""
    cluster = Cluster()
    cluster.join(cards=(SMALL, MIDDLE), ready=(SMALL,))
    return cluster


def planned(cluster: Cluster, *preparing: ModelId, ready: frozenset[ModelId] = frozenset()) -> list[Action]:
    return plan(A, cluster.state, Local({}, frozenset(preparing), ready), cluster.now)


def seen(cluster: Cluster, status: str) -> list[str]:
    report = {"node_id": A, "model_id": MIDDLE.model_id, "status": status, "reason": "no space"}
    return types(cluster.tell(DownloadSeen.model_validate(report)))


def download(cluster: Cluster) -> Download | None:
    return cluster.state.downloads.get(download_key(A, MIDDLE.model_id))


def status(cluster: Cluster) -> tuple[str, bool] | None:
    found = download(cluster)
    return None if found is None else (found.status, found.requested)


def test_what_is_wanted_is_prepared_until_it_is_there(cluster: Cluster) -> None:
    assert types(cluster.tell(START)) == ["DownloadRequested"]
    assert status(cluster) == ("requested", True)
    assert planned(cluster) == [PrepareModel(MIDDLE)]
    assert planned(cluster, MIDDLE.model_id) == []
    seen(cluster, "started")
    assert status(cluster) == ("running", True)
    assert planned(cluster, MIDDLE.model_id) == []
    seen(cluster, "finished")
    assert status(cluster) is None
    assert planned(cluster) == []


def test_what_has_come_is_not_prepared_again_before_state_knows(cluster: Cluster) -> None:
    cluster.tell(START)
    seen(cluster, "started")
    assert planned(cluster, ready=frozenset({MIDDLE.model_id})) == []


def test_a_model_that_is_there_by_other_means_ends_what_was_asked_for(cluster: Cluster) -> None:
    cluster.tell(START)
    cluster.join(cards=(SMALL, MIDDLE), ready=(SMALL, MIDDLE))
    assert planned(cluster, ready=frozenset({MIDDLE.model_id})) == [PrepareModel(MIDDLE)]


def test_what_is_taken_back_is_abandoned(cluster: Cluster) -> None:
    cluster.tell(START)
    seen(cluster, "started")
    assert types(cluster.tell(CANCEL)) == ["DownloadCancelled"]
    assert status(cluster) == ("running", False)
    assert planned(cluster, MIDDLE.model_id) == [AbandonModel(MIDDLE.model_id)]
    assert seen(cluster, "abandoned") == ["DownloadFailed"]
    assert status(cluster) == ("failed", False)


def test_what_is_taken_back_before_it_began_is_forgotten(cluster: Cluster) -> None:
    cluster.tell(START)
    cluster.tell(CANCEL)
    assert status(cluster) is None
    assert planned(cluster) == []


def test_what_is_taken_back_goes_on_for_an_instance(cluster: Cluster) -> None:
    cluster.place(MIDDLE, ready=False)
    seen(cluster, "started")
    cluster.tell(START)
    assert status(cluster) == ("running", True)
    cluster.tell(CANCEL)
    assert planned(cluster, MIDDLE.model_id) == []


def test_an_instance_and_a_wish_are_one_preparation(cluster: Cluster) -> None:
    cluster.place(MIDDLE, ready=False)
    cluster.tell(START)
    assert planned(cluster) == [PrepareModel(MIDDLE)]


def test_a_failure_ends_it_and_it_can_be_asked_for_again(cluster: Cluster) -> None:
    cluster.tell(START)
    seen(cluster, "started")
    seen(cluster, "failed")
    assert status(cluster) == ("failed", False)
    assert planned(cluster) == []
    assert types(cluster.tell(START)) == ["DownloadRequested"]
    assert status(cluster) == ("requested", True)


def test_it_outlives_a_restart_of_the_worker_but_not_the_node(cluster: Cluster) -> None:
    cluster.tell(START)
    seen(cluster, "started")
    cluster.join(cards=(SMALL, MIDDLE), ready=(SMALL,), boot_id="another")
    assert status(cluster) == ("requested", True)
    assert planned(cluster) == [PrepareModel(MIDDLE)]
    cluster.passes(limits.NODE_SILENT + 1, {A: cluster.now})
    assert requested_on(cluster.state, A) == set()


def test_a_worker_that_does_not_begin_has_a_deadline(cluster: Cluster) -> None:
    cluster.tell(START)
    assert cluster.passes(limits.RUNNER_WAITING) == []
    assert types(cluster.passes(1)) == ["DownloadFailed"]
    found = download(cluster)
    assert found is not None
    assert "did not begin" in found.reason


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (StartDownload(node_id=NodeId("b"), model_id=MIDDLE.model_id), "node_not_found"),
        (StartDownload(node_id=A, model_id=LARGE.model_id), "model_not_found"),
        (StartDownload(node_id=A, model_id=SMALL.model_id), "already_on_disk"),
        (CANCEL, "download_not_found"),
    ],
)
def test_what_cannot_be_is_refused(cluster: Cluster, command: StartDownload | CancelDownload, code: str) -> None:
    assert cluster.refusal(command).code == code


def test_what_is_on_its_way_is_not_asked_for_twice(cluster: Cluster) -> None:
    cluster.tell(START)
    assert cluster.refusal(START).code == "already_requested"
