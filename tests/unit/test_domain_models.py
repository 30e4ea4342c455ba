"""Models that somebody makes known to the cluster, and takes back."""

import pytest
from test_domain_cluster import MIDDLE, SMALL, Cluster, types

from exo.domain.ids import ApiId, NodeId, TaskId
from exo.domain.messages.commands import AddModel, ForgetModel, PlaceInstance, StartDownload
from exo.domain.messages.events import GenerationQueued
from exo.domain.state import State

ADD = AddModel(card=MIDDLE)
FORGET = ForgetModel(model_id=MIDDLE.model_id)


@pytest.fixture
def cluster() -> Cluster:
    """One node that has the small model."""
    cluster = Cluster()
    cluster.join(cards=(SMALL,), ready=(SMALL,))
    return cluster


def test_a_model_that_was_added_is_known_until_it_is_forgotten(cluster: Cluster) -> None:
    assert types(cluster.tell(ADD)) == ["ModelAdded"]
    assert cluster.state.added_models[MIDDLE.model_id] == MIDDLE
    assert State.model_validate_json(cluster.state.model_dump_json()) == cluster.state
    assert types(cluster.tell(FORGET)) == ["ModelForgotten"]
    assert not cluster.state.added_models
    assert types(cluster.tell(ADD)) == ["ModelAdded"]


def test_what_is_known_already_is_not_added(cluster: Cluster) -> None:
    assert cluster.refusal(AddModel(card=SMALL)).code == "already_known"
    cluster.tell(ADD)
    assert cluster.refusal(AddModel(card=MIDDLE.model_copy(update={"context": 4}))).code == "already_known"


def test_only_what_was_added_is_forgotten(cluster: Cluster) -> None:
    assert cluster.refusal(FORGET).code == "model_not_found"
    assert cluster.refusal(ForgetModel(model_id=SMALL.model_id)).code == "model_not_found"


def test_what_an_instance_has_is_not_forgotten(cluster: Cluster) -> None:
    cluster.tell(ADD)
    cluster.join(cards=(SMALL, MIDDLE), ready=(SMALL,))
    cluster.tell(PlaceInstance(model_id=MIDDLE.model_id))
    refusal = cluster.refusal(FORGET)
    assert refusal.code == "model_in_use"
    assert next(iter(cluster.state.instances)) in refusal.reason


def test_what_requests_wait_for_is_not_forgotten(cluster: Cluster) -> None:
    cluster.tell(ADD)
    asked = {"task_id": TaskId("t"), "model_id": MIDDLE.model_id, "reply_to": ApiId("api")}
    cluster.record(GenerationQueued.model_validate({**asked, "estimated_tokens": 1, "key": "k"}))
    assert cluster.refusal(FORGET).code == "model_in_use"


def test_what_is_forgotten_is_not_fetched_any_more(cluster: Cluster) -> None:
    cluster.tell(ADD)
    cluster.join(cards=(SMALL, MIDDLE), ready=(SMALL,))
    cluster.tell(StartDownload(node_id=NodeId("a"), model_id=MIDDLE.model_id))
    assert types(cluster.tell(FORGET)) == ["DownloadCancelled", "ModelForgotten"]
    assert not cluster.state.downloads
