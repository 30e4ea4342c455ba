"""Which links a ring takes, what RDMA needs, and the words of a refusal over several nodes."""

from collections.abc import Sequence

import pytest
from test_domain_cluster import GB, LARGE, Cluster, card

from exo.domain.ids import NodeId
from exo.domain.messages.reports import LinksSeen
from exo.domain.model_card import ModelCard
from exo.domain.node import Link, LinkKind
from exo.domain.placement import Placement, PlacementRequest, Refused, place
from exo.domain.placement.rdma import find_mesh
from exo.domain.placement.rings import RING_ORDER, best_links, find_ring
from exo.domain.placement.sharding import pipeline_layers, tensor_problem, tensor_sizes
from exo.domain.shard import EngineName
from exo.domain.state import Node, host_of


def linked(cluster: Cluster, links: Sequence[tuple[str, str, LinkKind, str]]) -> None:
    """Give each node its links: from, to, kind, address."""
    for one in sorted(cluster.state.nodes):
        found = tuple(link_of(*link) for link in links if link[0] == one)
        cluster.tell(LinksSeen(node_id=one, boot_id="boot", links=found))


def link_of(_one: str, to: str, kind: LinkKind, address: str) -> Link:
    if kind == "rdma":
        return Link(to=NodeId(to), kind=kind, device=address)
    return Link(to=NodeId(to), kind=kind, address=address)


def joined(names: str, gigabytes: int = 32) -> Cluster:
    cluster = Cluster()
    for name in names:
        cluster.join(name, gigabytes=gigabytes)
    return cluster


def nodes(cluster: Cluster) -> list[Node]:
    return [node for _, node in sorted(cluster.state.nodes.items())]


def placed(cluster: Cluster, request: PlacementRequest) -> Placement:
    placement = place(cluster.state, request)
    assert isinstance(placement, Placement), placement
    return placement


def refused(cluster: Cluster, request: PlacementRequest) -> Refused:
    refusal = place(cluster.state, request)
    assert isinstance(refusal, Refused)
    return refusal


def both_ways(one: str, other: str, kind: LinkKind, address: str = "x") -> list[tuple[str, str, LinkKind, str]]:
    return [(one, other, kind, f"{other}-{address}"), (other, one, kind, f"{one}-{address}")]


def test_a_ring_takes_the_best_of_several_links() -> None:
    cluster = joined("ab")
    linked(cluster, [*both_ways("a", "b", "wifi", "w"), *both_ways("a", "b", "thunderbolt", "t")])
    placement = placed(cluster, PlacementRequest(LARGE))
    assert [share.host for share in placement.shares] == ["a-t", "b-t"]


def test_a_ring_over_good_links_goes_before_a_shorter_way_over_a_bad_one() -> None:
    cluster = joined("abcd")
    good = [("a", "c"), ("c", "b"), ("b", "d"), ("d", "a")]
    bad = [("a", "b"), ("b", "c"), ("c", "d")]
    linked(
        cluster,
        [(one, to, "thunderbolt", to) for one, to in good] + [(one, to, "wifi", to) for one, to in bad],
    )
    hops = best_links(nodes(cluster), RING_ORDER)
    assert find_ring([NodeId(name) for name in "abcd"], hops) == ("a", "c", "b", "d")


def test_links_of_one_direction_make_a_ring_where_they_lead_around() -> None:
    cluster = joined("abc")
    linked(cluster, [("a", "c", "ethernet", "1"), ("c", "b", "ethernet", "2"), ("b", "a", "ethernet", "3")])
    placement = placed(cluster, PlacementRequest(LARGE, min_nodes=3))
    assert placement.node_ids == ("a", "c", "b")
    assert [share.host for share in placement.shares] == ["3", "1", "2"]


def test_links_to_nodes_that_are_gone_count_for_nothing() -> None:
    cluster = joined("a")
    linked(cluster, [("a", "b", "ethernet", "1")])
    assert best_links(nodes(cluster), RING_ORDER).links == {}


MESH: list[tuple[str, str, LinkKind, str]] = [
    *(link for pair in ("ab", "ac", "bc") for link in both_ways(*pair, "ethernet", "e")),
    *(("a", to, "rdma", f"rdma_a{to}") for to in "bc"),
    *(("b", to, "rdma", f"rdma_b{to}") for to in "ac"),
    *(("c", to, "rdma", f"rdma_c{to}") for to in "ab"),
]


def test_rdma_has_a_device_for_each_pair_and_an_address_of_rank_0_for_each_rank() -> None:
    cluster = joined("abc")
    linked(cluster, MESH)
    placement = placed(cluster, PlacementRequest(LARGE, backend="jaccl", min_nodes=3))
    assert placement.backend == "jaccl"
    assert placement.rdma_devices == (
        ("", "rdma_ab", "rdma_ac"),
        ("rdma_ba", "", "rdma_bc"),
        ("rdma_ca", "rdma_cb", ""),
    )
    assert placement.coordinators == ("0.0.0.0", "a-e", "a-e")


def test_rdma_that_lacks_one_pair_is_refused_with_its_name() -> None:
    cluster = joined("abc")
    linked(cluster, [link for link in MESH if link[3] != "rdma_cb"])
    refusal = refused(cluster, PlacementRequest(LARGE, backend="jaccl", min_nodes=3))
    assert refusal.code == "no_rdma"
    assert "host-c has no RDMA link to host-b" in refusal.reason


def test_rdma_without_an_address_to_meet_at_is_refused() -> None:
    cluster = joined("ab")
    linked(cluster, [("a", "b", "rdma", "rdma_en1"), ("b", "a", "rdma", "rdma_en2")])
    assert find_mesh(nodes(cluster)) == "host-b has no link with an address to host-a"


def test_on_one_node_there_is_nobody_to_talk_to() -> None:
    cluster = joined("a", 64)
    placement = placed(cluster, PlacementRequest(LARGE, backend="jaccl", sharding="tensor"))
    assert (placement.backend, placement.sharding, placement.rdma_devices) == ("ring", "pipeline", ())
    assert placement.reason.endswith(
        "host-a was chosen, as a ring of one: a single node talks to nobody, so jaccl is not used"
    )
    assert "ring of one" not in placed(cluster, PlacementRequest(LARGE)).reason


def test_nodes_of_one_machine_are_told_apart_by_their_ids() -> None:
    cluster = joined("ab", 64)
    state = cluster.state
    for node_id, node in state.nodes.items():
        twin = node.replaced({"facts": node.facts.replaced({"hostname": "vm"})})
        state = state.replaced({"nodes": state.nodes.set(node_id, twin)})
    placement = place(state, PlacementRequest(LARGE))
    assert isinstance(placement, Placement)
    assert "vm (a) can give" in placement.reason
    assert "vm (b) can give" in placement.reason
    assert placement.reason.endswith("vm (a) was chosen")
    assert host_of(state, NodeId("b")) == "vm (b)"
    assert host_of(cluster.state, NodeId("b")) == "host-b"
    assert host_of(cluster.state, NodeId("gone")) == "gone"


def shaped(heads: int, kv_heads: int, hidden_size: int) -> ModelCard:
    return card("shaped").model_copy(
        update={"heads": heads, "kv_heads": kv_heads, "hidden_size": hidden_size, "supports_tensor": True}
    )


def test_slices_that_do_not_divide_are_refused_with_the_numbers_that_would() -> None:
    smollm2 = shaped(9, 3, 576)
    assert tensor_problem(smollm2, 3) is None
    assert tensor_problem(smollm2, 2) == "9 heads and 3 KV heads do not divide by 2: 3 nodes would do"
    assert tensor_problem(shaped(32, 8, 4096), 3) == (
        "32 heads and 8 KV heads and 4096 hidden size do not divide by 3: 2, 4, 8 nodes would do"
    )
    assert tensor_problem(shaped(7, 7, 11), 2) == (
        "7 heads and 7 KV heads and 11 hidden size do not divide by 2: no number of nodes does"
    )
    assert tensor_sizes(smollm2) == [3]


def test_a_family_that_is_not_sharded_by_tensor_is_refused() -> None:
    assert "use pipeline sharding" in (tensor_problem(card("other"), 2) or "")


@pytest.mark.parametrize(
    ("layers", "memory", "counts"),
    [
        (12, [1, 1, 1], [4, 4, 4]),
        (20, [900, 50, 50], [18, 1, 1]),
        (40, [32, 48], [16, 24]),
        (3, [100, 1, 1], [1, 1, 1]),
        (10, [1, 1, 1], [4, 3, 3]),
    ],
)
def test_layers_go_by_largest_remainder(layers: int, memory: list[int], counts: list[int]) -> None:
    assert pipeline_layers(layers, [bytes_ * GB for bytes_ in memory], layers) == counts


def test_a_node_that_rounding_would_overfill_gives_a_layer_to_one_that_has_room() -> None:
    assert pipeline_layers(4, [19, 31], 40) == [1, 3]
    assert pipeline_layers(4, [15, 29], 40) is None


def test_shares_of_a_tensor_model_are_equal_and_each_must_fit() -> None:
    cluster = Cluster()
    model = LARGE.model_copy(update={"supports_tensor": True, "kv_heads": 2})
    for name, gigabytes in (("a", 50), ("b", 20)):
        cluster.join(name, gigabytes=gigabytes, cards=(model,), ready=(model,))
    linked(cluster, both_ways("a", "b", "ethernet"))
    refusal = refused(cluster, PlacementRequest(model, sharding="tensor", min_nodes=2))
    assert refusal.code == "insufficient_memory"
    assert "each would need 22.00 GB, and they can give host-a 50.00 GB, host-b 20.00 GB" in refusal.reason
    assert isinstance(place(cluster.state, PlacementRequest(model, min_nodes=2)), Placement)


def test_a_refusal_tells_of_single_nodes_and_of_groups() -> None:
    cluster = joined("ab", 16)
    linked(cluster, both_ways("a", "b", "ethernet"))
    refusal = refused(cluster, PlacementRequest(LARGE))
    assert refusal.code == "insufficient_memory"
    assert refusal.reason == (
        "maker/large needs 44.00 GB, more than any node can give: host-a can give 16.00 GB and has it on disk; host-b "
        "can give 16.00 GB and has it on disk. Over several nodes: host-a and host-b together can give 32.00 GB"
    )


def test_vllm_needs_more_headroom_and_one_node() -> None:
    cluster = Cluster()
    cluster.join("a", gigabytes=50, engines=("mlx", "vllm"))
    assert "52.00 GB" in refused(cluster, PlacementRequest(LARGE, engine="vllm")).reason
    assert refused(cluster, PlacementRequest(LARGE, engine="vllm", min_nodes=2)).code == "vllm_one_node_only"
    assert refused(cluster, PlacementRequest(LARGE, engine="vllm", sharding="tensor")).code == "vllm_one_node_only"
    cluster.join("a", gigabytes=64, engines=("mlx", "vllm"))
    assert placed(cluster, PlacementRequest(LARGE, engine="vllm")).engine == "vllm"


def test_a_refusal_of_vllm_tells_of_no_groups() -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.join(name, engines=("vllm",))
    refusal = refused(cluster, PlacementRequest(LARGE, engine="vllm"))
    assert (refusal.code, refusal.lacks_links) == ("insufficient_memory", False)
    assert refusal.reason.endswith("host-c can give 16.00 GB and has it on disk")
    assert "Over several nodes" not in refusal.reason


def test_nodes_that_were_asked_for_and_are_not_there_are_named() -> None:
    refusal = refused(joined("a"), PlacementRequest(LARGE, node_ids=(NodeId("a"), NodeId("z"))))
    assert (refusal.code, refusal.reason) == ("node_not_found", "no node z is in the cluster")


@pytest.mark.parametrize(
    ("engines", "model_id", "chosen"),
    [
        (("mlx", "vllm"), "maker/model", "mlx"),
        (("vllm", "mlx"), "maker/model", "vllm"),
        (("vllm",), "maker/model", "vllm"),
        (("vllm", "mlx"), "mlx-community/model", "mlx"),
    ],
)
def test_where_no_engine_is_asked_for_it_is_the_first_that_reads_the_model(
    engines: tuple[EngineName, ...], model_id: str, chosen: EngineName
) -> None:
    cluster = Cluster()
    model = card(model_id, 2).model_copy(update={"model_id": model_id, "quantization": "4bit"})
    cluster.join("a", gigabytes=64, engines=engines, cards=[model], ready=[model])
    assert placed(cluster, PlacementRequest(model)).engine == chosen


def test_an_engine_that_cannot_read_the_model_is_refused_with_the_reason() -> None:
    cluster = Cluster()
    model = card("model", 2).model_copy(update={"model_id": "mlx-community/model", "quantization": "4bit"})
    cluster.join("a", gigabytes=64, engines=("vllm",), cards=[model], ready=[model])
    assert "does not read MLX's 4bit weights" in refused(cluster, PlacementRequest(model)).reason
