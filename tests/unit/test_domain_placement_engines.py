"""Which engine a model gets, by what nodes have, by its weights, and by what was measured."""

import pytest
from test_domain_cluster import GB, MIDDLE, SMALL, Cluster, card

from exo.domain.ids import ModelId, NodeId
from exo.domain.model_card import ModelCard
from exo.domain.node import EngineFacts, Gpu, NodeFacts
from exo.domain.placement import Placement, PlacementRequest, Refused, place
from exo.domain.placement.previews import previews
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import SPEEDS_KEPT, Node, Speed, State
from tests import builders

A = NodeId("a")
BOTH: tuple[EngineName, ...] = ("mlx", "vllm")
QUANTIZED = card("quantized", 2).model_copy(update={"quantization": "4bit", "quantized_by": "mlx"})


def cluster_of(engines: tuple[EngineName, ...] = BOTH, gigabytes: int = 16, **measured: float) -> State:
    """One node, on which each engine was measured with SMALL."""
    cluster = Cluster()
    cards = (SMALL, MIDDLE, QUANTIZED)
    cluster.join("a", gigabytes=gigabytes, engines=engines, cards=cards, ready=cards)
    return cluster.state.replaced({"speeds": tuple(speed(engine, number) for engine, number in measured.items())})


def speed(engine: str, tokens_per_second: float, node_id: str = "a") -> Speed:
    of = {"node_id": node_id, "engine": engine, "model_id": SMALL.model_id}
    return Speed.model_validate(of | {"tokens_per_second": tokens_per_second})


def with_facts(state: State, **changes: object) -> State:
    node: Node = state.nodes[A]
    facts = NodeFacts.model_validate(node.facts.model_dump() | changes)
    return state.replaced({"nodes": state.nodes.set(A, node.replaced({"facts": facts}))})


def placed(state: State, model: ModelCard = SMALL, engine: EngineName | None = None) -> Placement:
    placement = place(state, PlacementRequest(model, engine=engine))
    assert isinstance(placement, Placement), placement
    return placement


def refused(state: State, model: ModelCard, engine: EngineName | None = None) -> Refused:
    refusal = place(state, PlacementRequest(model, engine=engine))
    assert isinstance(refusal, Refused), refusal
    return refusal


def test_the_engine_that_was_measured_to_be_faster_is_chosen() -> None:
    placement = placed(cluster_of(mlx=17.2, vllm=56))
    assert placement.engine == "vllm"
    assert placement.reason.endswith("; mlx was measured at 17.2 tokens/s there, vllm at 56.0")


@pytest.mark.parametrize("measured", [{}, {"vllm": 56.0}, {"mlx": 50.0, "vllm": 54.0}, {"mlx": 56.0, "vllm": 17.0}])
def test_the_preferred_engine_stays_where_the_other_was_not_measured_to_be_faster(measured: dict[str, float]) -> None:
    assert placed(cluster_of(**measured)).engine == "mlx"


def test_a_choice_without_measurements_says_that_it_is_a_preference() -> None:
    assert placed(cluster_of(("vllm", "mlx"))).reason.endswith("; vllm is preferred to mlx")


def test_what_was_measured_on_another_node_or_of_another_model_decides_nothing() -> None:
    elsewhere = cluster_of().replaced({"speeds": (speed("mlx", 1, "b"), speed("vllm", 100, "b"))})
    assert placed(elsewhere).engine == "mlx"
    assert placed(cluster_of(mlx=1, vllm=100), MIDDLE).engine == "mlx"


def test_an_engine_that_is_asked_for_is_taken_though_it_is_slower() -> None:
    assert placed(cluster_of(mlx=17.2, vllm=56), engine="mlx").engine == "mlx"


def test_a_faster_engine_without_room_is_none() -> None:
    assert placed(cluster_of(mlx=1, vllm=9, gigabytes=8), MIDDLE).engine == "mlx"


def test_a_warm_up_is_remembered_for_its_node_and_engine() -> None:
    cluster = Cluster()
    cluster.join("a")
    cluster.place()
    assert cluster.state.speeds == (speed("mlx", 12.5),)
    cluster.join("a", boot_id="later")
    assert cluster.state.speeds == (speed("mlx", 12.5),)


def test_only_the_last_measurements_are_kept_and_of_each_kind_one() -> None:
    cluster = Cluster()
    cluster.join("a")
    others = tuple(Speed(node_id=A, engine="mlx", model_id=ModelId(f"m/{n}"), tokens_per_second=1) for n in range(200))
    before = (speed("mlx", 3), *others)[:SPEEDS_KEPT]
    cluster.state = cluster.state.replaced({"speeds": before})
    cluster.place()
    assert cluster.state.speeds == (*before[1:], speed("mlx", 12.5))
    cluster.state = cluster.state.replaced({"speeds": others})
    cluster.place()
    assert cluster.state.speeds == (*others[1:], speed("mlx", 12.5))


def test_weights_that_mlx_quantized_are_not_for_vllm_whatever_the_model_is_called() -> None:
    assert placed(cluster_of(("vllm", "mlx")), QUANTIZED).engine == "mlx"
    assert refused(cluster_of(), QUANTIZED, "vllm").code == "not_offered"


def test_weights_in_fp8_are_not_for_mlx() -> None:
    fp8 = QUANTIZED.model_copy(update={"quantization": "8bit", "quantized_by": "fp8"})
    assert placed(cluster_of(), fp8).engine == "vllm"
    assert refused(cluster_of(("mlx",)), fp8).code == "not_offered"


def test_weights_that_mlx_quantized_have_no_place_where_mlx_computes_on_cuda() -> None:
    gpus = (Gpu(name="g", total_bytes=GB),)
    on_gpu, on_cpu = (EngineFacts(name="mlx", runs=True, device=device) for device in ("gpu", "cpu"))
    state = with_facts(cluster_of(("mlx",)), gpus=gpus, engine_facts=[on_gpu])
    assert "no matrix product of 4bit weights" in refused(state, QUANTIZED).reason
    assert placed(state).engine == "mlx"
    assert placed(with_facts(state, engine_facts=[on_cpu]), QUANTIZED).engine == "mlx"


def test_a_node_without_the_engine_says_why() -> None:
    state = with_facts(cluster_of(("mlx",)), engine_facts=[EngineFacts(name="vllm", problem="not installed: do this")])
    refusal = refused(state, SMALL, "vllm")
    assert refusal.code == "no_engine"
    assert refusal.reason.endswith("(vllm): host-a has no vllm: not installed: do this")


def on_gpus(*gigabytes: int, unified: bool = False) -> State:
    """A node with 16 GB of its own, and GPUs."""
    gpus = [Gpu(name="g", total_bytes=0 if unified else size * GB, unified=unified) for size in gigabytes]
    vllm = EngineFacts(name="vllm", runs=True, device="gpu")
    return with_facts(cluster_of(("vllm", "mlx")), gpus=gpus, engine_facts=[vllm])


def test_for_vllm_on_gpus_their_memory_counts_and_not_the_machines() -> None:
    assert "can give 8.00 GB" in refused(on_gpus(8), MIDDLE, "vllm").reason
    assert placed(on_gpus(8), MIDDLE).engine == "mlx"
    assert placed(on_gpus(24), MIDDLE).engine == "vllm"


def test_memory_that_a_gpu_shares_is_the_machines() -> None:
    large = MIDDLE.model_copy(update={"weight_bytes": 16 * GB})
    assert "can give 12.00 GB" in refused(on_gpus(24, unified=True), large, "vllm").reason


def test_a_model_is_divided_over_as_many_gpus_as_its_heads_divide_by() -> None:
    two = MIDDLE.model_copy(update={"heads": 4, "kv_heads": 2})
    assert "can give 12.00 GB" in placed(on_gpus(6, 6, 6), two, "vllm").reason
    assert refused(on_gpus(6, 6, 6), MIDDLE.model_copy(update={"kv_heads": 1}), "vllm").code == "insufficient_memory"


def test_over_a_ray_cluster_the_memory_of_its_machines_counts() -> None:
    vllm = EngineFacts(name="vllm", runs=True, device="gpu", machines=2)
    assert "can give 16.00 GB" in placed(with_facts(on_gpus(8), engine_facts=[vllm]), MIDDLE, "vllm").reason
    state = with_facts(on_gpus(0, unified=True), engine_facts=[vllm])
    assert "can give 24.00 GB" in placed(state, MIDDLE, "vllm").reason
    assert "can give 12.00 GB" in placed(state, MIDDLE, "mlx").reason


def with_instance(state: State, engine: EngineName) -> State:
    """MIDDLE is placed on the node."""
    instance = builders.instance(builders.whole(MIDDLE, "runner", "a"), engine=engine)
    return state.replaced({"instances": state.instances.set(instance.instance_id, instance)})


def test_what_lies_in_a_gpu_takes_nothing_of_the_machines_memory_and_the_other_way_round() -> None:
    state = on_gpus(24)
    beside = with_instance(state, "vllm")
    assert "can give 16.00 GB" in placed(beside, SMALL, "mlx").reason
    assert "can give 14.90 GB" in placed(beside, SMALL, "vllm").reason
    beside = with_instance(state, "mlx")
    assert "can give 24.00 GB" in placed(beside, SMALL, "vllm").reason


def test_previews_list_every_engine_with_its_speed_or_why_it_has_none() -> None:
    found = {one.engine: one for one in previews(cluster_of(("mlx",), mlx=17.5), PlacementRequest(SMALL))}
    assert found["mlx"].tokens_per_second == 17.5
    assert (found["vllm"].placement, found["vllm"].code, found["vllm"].tokens_per_second) == (None, "no_engine", None)
    assert found["vllm"].reason.endswith("host-a has no vllm")


def test_previews_over_several_nodes_say_that_vllm_takes_one() -> None:
    found = [one for one in previews(cluster_of(), PlacementRequest(SMALL, min_nodes=2)) if one.engine == "vllm"]
    assert [one.code for one in found] == ["vllm_one_node_only"]


@pytest.mark.parametrize(
    ("sharding", "backend", "is_listed"),
    [("pipeline", "ring", True), ("tensor", "ring", False), ("pipeline", "jaccl", False)],
)
@pytest.mark.parametrize("engine", [None, "vllm"])
def test_previews_of_a_sharding_or_backend_that_vllm_has_not_leave_it_out(
    engine: EngineName | None, sharding: Sharding, backend: Backend, is_listed: bool
) -> None:
    found = previews(cluster_of(), PlacementRequest(SMALL, engine=engine), [sharding], [backend])
    assert ("vllm" in {one.engine for one in found}) == is_listed


def test_where_no_engine_has_a_place_the_reason_of_the_one_that_reads_the_model_is_told() -> None:
    """What is loaded may be unloaded for want of memory, and is not for weights that an engine does not read."""
    large = QUANTIZED.model_copy(update={"weight_bytes": 100 * GB})
    refusal = refused(cluster_of(("vllm", "mlx")), large)
    assert refusal.code == "insufficient_memory"
    beside = QUANTIZED.model_copy(update={"weight_bytes": 12 * GB})
    assert refused(with_instance(cluster_of(("vllm", "mlx")), "mlx"), beside).may_pass
