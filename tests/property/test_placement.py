"""Placement over clusters of any shape: what is placed fits and is linked, and what is refused has no place."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from exo.domain.ids import InstanceId, NodeId, RunnerId
from exo.domain.model_card import ModelCard
from exo.domain.node import Holding, Link, LinkKind
from exo.domain.placement import Placement, PlacementRequest, Refused, instance_from, needed_bytes, place
from exo.domain.placement.previews import previews
from exo.domain.placement.sharding import pipeline_layers, tensor_sizes
from exo.domain.shard import Sharding
from exo.domain.state import Node, State
from tests import builders

LAYERS = 6
NAMES = "abcde"
KINDS: tuple[LinkKind, ...] = ("ethernet", "wifi", "thunderbolt", "loopback")


@dataclass(frozen=True)
class Case:
    """A cluster and a request."""

    memory: tuple[int, ...]
    links: frozenset[tuple[int, int, LinkKind]]
    weight: int
    sharding: Sharding
    min_nodes: int
    required: tuple[int, ...]

    @property
    def card(self) -> ModelCard:
        return builders.card(layers=LAYERS, head_dim=1, weight_bytes=self.weight, context=1, supports_tensor=True)

    @property
    def request(self) -> PlacementRequest:
        names = tuple(NodeId(NAMES[index]) for index in self.required)
        return PlacementRequest(self.card, context=1, sharding=self.sharding, min_nodes=self.min_nodes, node_ids=names)

    @property
    def state(self) -> State:
        return builders.state([self.node(index) for index in range(len(self.memory))])

    def node(self, index: int) -> Node:
        facts = builders.facts(NAMES[index], memory_bytes=self.memory[index], engines=("mlx",))
        links = [
            Link(to=NodeId(NAMES[to]), kind=kind, address=f"10.0.0.{to}")
            for of, to, kind in sorted(self.links)
            if of == index
        ]
        return builders.node(
            NAMES[index],
            Holding(card=self.card, status="ready"),
            facts=facts,
            available_bytes=self.memory[index],
            links=tuple(links),
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, len(NAMES)))
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    chosen = draw(st.sets(st.sampled_from(pairs))) if pairs else set[tuple[int, int]]()
    return Case(
        memory=tuple(draw(st.lists(st.integers(1_000, 100_000), min_size=count, max_size=count))),
        links=frozenset((*pair, draw(st.sampled_from(KINDS))) for pair in chosen),
        weight=draw(st.integers(1_000, 200_000)),
        sharding=draw(st.sampled_from(("pipeline", "tensor"))),
        min_nodes=draw(st.integers(1, 3)),
        required=tuple(draw(st.sets(st.integers(0, count - 1), max_size=2))),
    )


def could(case: Case, group: Sequence[int]) -> bool:
    """Whether a group could take the model, found out by trying everything."""
    pairs = {(one, other) for one, other, _ in case.links}
    first, *rest = group
    rings = ((first, *order) for order in permutations(rest))
    linked = len(group) == 1 or any(all((ring[at - 1], ring[at]) in pairs for at in range(len(ring))) for ring in rings)
    needed = needed_bytes(case.card, 1)
    memory = [case.memory[index] for index in group]
    if not linked or sum(memory) < needed:
        return False
    if case.sharding == "tensor" and len(group) > 1:
        return len(group) in tensor_sizes(case.card) and min(memory) * len(group) >= needed
    most = [bytes_ * LAYERS // needed for bytes_ in memory]
    return sum(most) >= LAYERS and min(most) >= 1


def groups(case: Case, size: int) -> list[tuple[int, ...]]:
    found = combinations(range(len(case.memory)), size)
    return [group for group in found if set(case.required) <= set(group)]


@given(cases())
@settings(max_examples=300)
def test_the_smallest_group_that_could_take_a_model_takes_it_and_otherwise_it_is_refused(case: Case) -> None:
    placement = place(case.state, case.request)
    sizes = range(case.min_nodes, len(case.memory) + 1)
    able = [size for size in sizes if any(could(case, group) for group in groups(case, size))]
    if isinstance(placement, Refused):
        assert not able, placement
        assert placement.reason
    else:
        assert len(placement.shares) == able[0]


@given(cases())
@settings(max_examples=300)
def test_what_is_placed_is_a_ring_of_linked_nodes_that_covers_the_model_and_fits(case: Case) -> None:
    placement = place(case.state, case.request)
    if isinstance(placement, Refused):
        return
    shares, nodes = placement.shares, [NAMES.index(node_id) for node_id in placement.node_ids]
    assert len(set(nodes)) == len(nodes) >= case.min_nodes
    assert set(case.required) <= set(nodes)
    assert all(share.needed <= case.memory[node] for share, node in zip(shares, nodes, strict=True))
    if len(shares) > 1:
        pairs = {(one, other) for one, other, _ in case.links}
        assert all((nodes[at - 1], nodes[at]) in pairs for at in range(len(nodes)))
        assert [share.host for share in shares] == [f"10.0.0.{node}" for node in nodes]
    covered = [layer for share in reversed(shares) for layer in range(share.start_layer, share.end_layer)]
    if placement.sharding == "tensor":
        assert covered == [*range(LAYERS)] * len(shares)
    else:
        assert covered == [*range(LAYERS)]
    ids = [RunnerId(f"r{rank}") for rank in range(len(shares))]
    assert instance_from(placement, case.card, InstanceId("i"), ids).node_ids == placement.node_ids


@given(cases())
def test_a_decision_does_not_depend_on_the_order_of_anything(case: Case) -> None:
    state = case.state
    backwards = State.model_validate({"nodes": dict(reversed(sorted(state.nodes.items())))})
    assert place(state, case.request) == place(backwards, case.request)


@given(cases())
def test_a_preview_that_is_offered_can_be_had_by_asking_for_it(case: Case) -> None:
    for preview in previews(case.state, PlacementRequest(case.card, context=1)):
        request = PlacementRequest(
            case.card,
            context=1,
            engine=preview.engine,
            sharding=preview.sharding,
            backend=preview.backend,
            min_nodes=preview.nodes,
        )
        placement = place(case.state, request)
        if preview.placement is not None:
            assert isinstance(placement, Placement)
            assert placement.shares == preview.placement.shares
        else:
            assert preview.reason
            assert preview.code
            assert isinstance(placement, Refused) or len(placement.shares) > preview.nodes


@given(
    st.integers(1, 100).flatmap(
        lambda layers: st.tuples(
            st.just(layers), st.lists(st.integers(1, 10**12), min_size=1, max_size=min(layers, 12))
        )
    ),
    st.integers(1, 10**12),
)
def test_layers_go_in_proportion_to_memory_at_least_one_each_and_no_more_than_fit(
    sizes: tuple[int, list[int]], needed: int
) -> None:
    layers, memory = sizes
    counts = pipeline_layers(layers, memory, needed)
    most = [bytes_ * layers // needed for bytes_ in memory]
    if counts is None:
        assert sum(most) < layers or min(most) < 1
        return
    assert sum(counts) == layers
    assert all(1 <= count <= limit for count, limit in zip(counts, most, strict=True))
    ideal = [layers * bytes_ / sum(memory) for bytes_ in memory]
    if all(1 <= quota <= limit - 1 for quota, limit in zip(ideal, most, strict=True)):
        assert all(abs(count - quota) < 1 for count, quota in zip(counts, ideal, strict=True))
