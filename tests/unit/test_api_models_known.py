"""Which models there are, and finding one by name."""

import pytest
from immutables import Map

from exo.api.known.models import find_model, known_models
from exo.domain.ids import ModelId, NodeId, RunnerId
from exo.domain.model_card import ModelCard
from exo.domain.node import DamagedModel, Holding
from exo.domain.runner_status import Loading, Ready, RunnerStatus
from exo.domain.state import Runner, State
from exo.errors import Rejected, Retryable
from tests import builders


def with_instance(before: State, model: ModelCard, status: RunnerStatus) -> State:
    instance = builders.instance(builders.whole(model, node_id="n1"), engine="scripted")
    runner = Runner(
        runner_id=RunnerId("runner"), instance_id=instance.instance_id, node_id=NodeId("n1"), status=status, since=0.0
    )
    return before.model_copy(
        update={"instances": Map({instance.instance_id: instance}), "runners": Map({runner.runner_id: runner})}
    )


A, B, C = (builders.card(name) for name in ("one/Alpha", "two/Beta", "three/Gamma"))
CLUSTER = builders.state(
    [
        builders.node("n1", Holding(card=A, status="obtainable"), Holding(card=B, status="ready")),
        builders.node("n2", Holding(card=A, status="ready"), Holding(card=C, status="obtainable")),
    ]
)


def statuses(of: State) -> dict[str, str]:
    return {model_id: status for model_id, (_, status) in known_models(of).items()}


def test_a_model_is_as_near_as_the_nearest_node_has_it() -> None:
    assert statuses(CLUSTER) == {"one/Alpha": "on_disk", "two/Beta": "on_disk", "three/Gamma": "obtainable"}


def test_the_ready_ones_come_first() -> None:
    ready = with_instance(CLUSTER, C, Ready(tokens_per_second=1.0))
    assert next(iter(statuses(ready).items())) == ("three/Gamma", "ready")
    assert statuses(with_instance(CLUSTER, C, Loading()))["three/Gamma"] == "loading"


@pytest.mark.parametrize("name", ["two/Beta", "TWO/beta", "Beta", "beta"])
def test_a_model_is_found_by_its_full_or_short_name_in_any_case(name: str) -> None:
    assert find_model(CLUSTER, name) == B


def test_an_unknown_model_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Rejected, match="one/Alpha") as caught:
        find_model(CLUSTER, "gpt-9")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("name", ["b/trunc", "Trunc"])
def test_of_a_damaged_model_is_said_where_it_is_and_what_is_wrong(name: str) -> None:
    damaged = DamagedModel(model_id=ModelId("b/trunc"), reason="w has 3 bytes of 9: fetch the model again")
    whole, broken = builders.node("n1", Holding(card=B, status="ready")), builders.node("n2", damaged=(damaged,))
    cluster = builders.state([whole, broken])
    with pytest.raises(Rejected, match=r"'b/trunc' is damaged on node host .n2.: w has 3 bytes of 9: fetch") as caught:
        find_model(cluster, name)
    assert (caught.value.code, caught.value.param) == ("model_damaged", "model")
    assert list(known_models(cluster)) == [B.model_id]


def test_without_nodes_there_is_nothing_to_be_found_yet() -> None:
    with pytest.raises(Retryable, match="no node"):
        find_model(State(), "Beta")
