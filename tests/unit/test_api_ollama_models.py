"""Models as Ollama's endpoints describe and pull them, by State alone."""

from hashlib import sha256

import pytest
from test_domain_cluster import GB, MIDDLE, SMALL, Cluster, card

from exo.api.ollama.descriptions import capabilities_of, details_of, digest_of, facts_of, parameters_of, shortened
from exo.api.ollama.loaded import FOR_EVER, expires_at
from exo.api.ollama.names import find_tagged, tagged
from exo.api.ollama.pulling import Pull, node_for, pull_on
from exo.domain.ids import NodeId
from exo.domain.messages.commands import CancelDownload, LimitIdleTime, StartDownload
from exo.domain.messages.reports import DownloadSeen
from exo.errors import Rejected

A, B = NodeId("a"), NodeId("b")


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes with the small model, which can get the middle one; the second has more memory free."""
    cluster = Cluster()
    cluster.join("a", cards=(SMALL, MIDDLE), ready=(SMALL,))
    cluster.join("b", gigabytes=32, cards=(SMALL, MIDDLE), ready=(SMALL,))
    return cluster


def seen(cluster: Cluster, status: str) -> None:
    report = {"node_id": A, "model_id": MIDDLE.model_id, "status": status, "reason": "no space"}
    cluster.tell(DownloadSeen.model_validate(report))


@pytest.mark.parametrize("name", ["maker/small:latest", "maker/small", "small", "SMALL:latest"])
def test_a_model_is_found_with_its_tag_and_without(cluster: Cluster, name: str) -> None:
    assert find_tagged(cluster.state, name) == SMALL
    assert tagged(SMALL.model_id) == "maker/small:latest"


def test_another_tag_is_another_model(cluster: Cluster) -> None:
    with pytest.raises(Rejected) as refused:
        find_tagged(cluster.state, "small:7b")
    assert refused.value.code == "model_not_found"


def test_a_model_is_described_by_its_card() -> None:
    four_bit = card("small").replaced({"quantization": "4bit"})
    assert parameters_of(card("x", 14)) == 7 * GB
    assert parameters_of(four_bit.replaced({"weight_bytes": 4_500_000_000})) == 8 * GB
    assert details_of(four_bit)["quantization_level"] == "4bit"
    facts = facts_of(card("x", context=4096))
    assert facts["general.architecture"] == "llama"
    assert facts["llama.context_length"] == 4096


@pytest.mark.parametrize(
    ("abilities", "capabilities"),
    [
        ((), ["completion"]),
        (("tools", "thinking"), ["completion", "tools", "thinking"]),
        (("embedding",), ["embedding"]),
    ],
)
def test_what_a_model_can_do_is_told_in_ollamas_words(abilities: tuple[str, ...], capabilities: list[str]) -> None:
    assert capabilities_of(SMALL.replaced({"abilities": abilities})) == capabilities


def test_a_models_digest_is_that_of_its_id_whatever_its_weights_are() -> None:
    assert digest_of(SMALL.model_id) == sha256(b"maker/small").hexdigest()
    assert digest_of(SMALL.model_id) != digest_of(MIDDLE.model_id)


@pytest.mark.parametrize(
    ("number", "text"), [(134_515_008, "134.52M"), (7_615_616_512, "7.6B"), (15_000, "15.0K"), (12, "12")]
)
def test_numbers_are_shortened(number: int, text: str) -> None:
    assert shortened(number) == text


def test_a_model_is_pulled_onto_the_node_with_most_room_or_where_it_is_on_its_way(cluster: Cluster) -> None:
    assert node_for(cluster.state, MIDDLE) == B
    cluster.tell(StartDownload(node_id=A, model_id=MIDDLE.model_id))
    assert node_for(cluster.state, MIDDLE) == A
    seen(cluster, "failed")
    assert node_for(cluster.state, MIDDLE) == B


def test_a_model_that_is_there_or_that_nobody_can_get_is_pulled_nowhere(cluster: Cluster) -> None:
    assert node_for(cluster.state, SMALL) is None
    assert node_for(cluster.state, card("unknown")) is None


def test_a_pull_is_followed_to_its_end(cluster: Cluster) -> None:
    cluster.tell(StartDownload(node_id=A, model_id=MIDDLE.model_id))
    assert pull_on(cluster.state, A, MIDDLE) == Pull("running")
    seen(cluster, "started")
    assert pull_on(cluster.state, A, MIDDLE) == Pull("running")
    seen(cluster, "finished")
    assert pull_on(cluster.state, A, MIDDLE) == Pull("there", held=1.0)


def test_a_pull_that_comes_to_nothing_says_why(cluster: Cluster) -> None:
    cluster.tell(StartDownload(node_id=A, model_id=MIDDLE.model_id))
    seen(cluster, "failed")
    assert pull_on(cluster.state, A, MIDDLE) == Pull("failed", reason="no space")
    cluster.tell(StartDownload(node_id=A, model_id=MIDDLE.model_id))
    cluster.tell(CancelDownload(node_id=A, model_id=MIDDLE.model_id))
    assert pull_on(cluster.state, A, MIDDLE).status == "failed"
    assert pull_on(cluster.state, NodeId("c"), MIDDLE) == Pull("failed", reason="its node was lost")


def test_a_loaded_model_says_until_when_it_stays(cluster: Cluster) -> None:
    cluster.place(SMALL)
    assert expires_at(cluster.state, SMALL.model_id, cluster.now) == cluster.now + FOR_EVER
    cluster.tell(LimitIdleTime(model_id=SMALL.model_id, seconds=60))
    limited = cluster.now
    assert expires_at(cluster.state, SMALL.model_id, limited + 10) == limited + 60
    cluster.start("t1")
    assert expires_at(cluster.state, SMALL.model_id, limited + 10) == limited + 70
