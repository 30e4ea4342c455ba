"""Where a model goes, and the figures that are given for it."""

import pytest
from test_domain_cluster import GB, LARGE, MIDDLE, SMALL, Cluster, card

from exo.domain.messages.commands import PlaceInstance
from exo.domain.model_card import ModelCard
from exo.domain.placement import Placement, PlacementRequest, Refused, needed_bytes, place
from exo.domain.state import State


def placed(cluster: Cluster, model: ModelCard = SMALL, context: int | None = None) -> Placement:
    placement = place(cluster.state, PlacementRequest(model, context))
    assert isinstance(placement, Placement), placement
    return placement


def refused(state: State, model: ModelCard) -> Refused:
    refusal = place(state, PlacementRequest(model))
    assert isinstance(refusal, Refused)
    return refusal


def test_the_reason_holds_every_figure() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=16, ready=())
    cluster.join("b", gigabytes=8)
    assert placed(cluster, MIDDLE).reason == (
        "needs 7.70 GB (7.00 GB weights, 524.29 kB KV cache for 2048 tokens, 10 % headroom); "
        "host-a can give 16.00 GB and would have to fetch it; "
        "host-b can give 8.00 GB and has it on disk; "
        "host-b was chosen"
    )


def test_keys_and_values_are_counted_for_the_context_that_is_asked_for() -> None:
    model = card("long", 2, context=100_000)
    assert model.kv_bytes(1000) == 2 * 4 * 1 * 16 * 2 * 1000
    assert model.model_copy(update={"quantization": "float32"}).kv_bytes(1000) == 2 * model.kv_bytes(1000)
    assert needed_bytes(model, 1000) == (2 * GB + model.kv_bytes(1000)) * 11 // 10


@pytest.mark.parametrize(("asked", "given"), [(None, 8192), (1000, 1000), (10**6, 100_000)])
def test_the_context_is_the_one_asked_for_and_never_more_than_the_models(asked: int | None, given: int) -> None:
    cluster = Cluster()
    model = card("long", 2, context=100_000)
    cluster.join(cards=(model,), ready=(model,))
    assert placed(cluster, model, asked).context == given


def test_a_node_that_has_the_model_wins_over_one_with_more_memory() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=8)
    cluster.join("b", gigabytes=64, ready=())
    assert placed(cluster).node_ids == ("a",)


def test_of_equals_the_most_free_memory_wins() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=8)
    cluster.join("b", gigabytes=64)
    assert placed(cluster).node_ids == ("b",)


def test_models_fill_at_most_three_quarters_of_unified_memory() -> None:
    cluster = Cluster()
    cluster.join(gigabytes=8, unified=True)
    assert "6.00 GB" in refused(cluster.state, MIDDLE).reason


def test_beside_another_model_only_what_is_free_and_not_promised_counts() -> None:
    cluster = Cluster()
    cluster.join(gigabytes=16)
    cluster.place(MIDDLE, ready=False)
    assert "can give 8.30 GB" in placed(cluster).reason
    cluster.join(gigabytes=16, available=3)
    assert "can give 3.00 GB" in placed(cluster).reason


def test_a_node_with_nothing_placed_offers_all_its_memory_whatever_else_runs_there() -> None:
    cluster = Cluster()
    cluster.join(gigabytes=16, available=1)
    assert "can give 16.00 GB" in placed(cluster, MIDDLE).reason


def test_a_model_that_fits_nowhere_is_refused_for_good() -> None:
    cluster = Cluster()
    cluster.join(gigabytes=16)
    refusal = refused(cluster.state, LARGE)
    assert not refusal.may_pass
    assert refusal.reason.startswith(
        "maker/large needs 44.00 GB, more than any node can give: host-a can give 16.00 GB"
    )


def test_a_model_that_would_fit_if_others_made_room_is_refused_for_now() -> None:
    cluster = Cluster()
    cluster.join(gigabytes=8)
    cluster.place(SMALL)
    assert refused(cluster.state, MIDDLE).may_pass


def test_without_a_node_there_is_no_place_yet() -> None:
    refusal = refused(State(), SMALL)
    assert refusal.may_pass
    assert refusal.reason == "no node has joined the cluster"


def test_a_node_without_an_engine_or_without_the_model_is_no_place() -> None:
    cluster = Cluster()
    cluster.join("a", engines=())
    cluster.join("b", cards=(MIDDLE,))
    assert not refused(cluster.state, SMALL).may_pass
    assert cluster.refusal(PlaceInstance(model_id=SMALL.model_id)).code == "no_engine"


def test_each_family_gets_its_engine() -> None:
    cluster = Cluster()
    scripted = card("scripted", family="scripted")
    cluster.join("a", cards=(scripted, SMALL), ready=(scripted, SMALL), engines=("scripted", "mlx"))
    assert placed(cluster, scripted).engine == "scripted"
    assert placed(cluster, SMALL).engine == "mlx"
