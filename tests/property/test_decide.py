"""What decisions promise, over every history that a cluster can have."""

from collections import Counter

from cluster_histories import CARDS, Step, histories, run
from hypothesis import given
from hypothesis import strategies as st

from exo.domain import limits
from exo.domain.fold import fold
from exo.domain.ids import InstanceId, NodeId
from exo.domain.messages.commands import (
    AddModel,
    CancelDownload,
    CancelGeneration,
    CreateKey,
    DeleteInstance,
    ForgetModel,
    LimitIdleTime,
    LinkInstances,
    PlaceInstance,
    RemoveModel,
    RevokeKey,
    StartDownload,
    StartGeneration,
    UnlinkInstances,
)
from exo.domain.messages.events import (
    CommandRejected,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    InstancePlaced,
    InstancesLinked,
    InstancesUnlinked,
    RunnerFailed,
)
from exo.domain.messages.reports import RunnerStatusSeen
from exo.domain.model_card import ModelCard
from exo.domain.placement import Placement, PlacementRequest, needed_bytes, place
from exo.domain.placement.memory import promised_bytes
from exo.domain.react import react
from exo.domain.runner_status import Failed
from exo.domain.state import State, is_ready

COMMANDS = (
    PlaceInstance
    | DeleteInstance
    | LimitIdleTime
    | LinkInstances
    | UnlinkInstances
    | StartDownload
    | CancelDownload
    | RemoveModel
    | AddModel
    | ForgetModel
    | StartGeneration
    | CancelGeneration
    | CreateKey
    | RevokeKey
)
WAITING = {"waiting", "connecting", "joining", "loading", "warming"}


@given(histories)
def test_every_command_leads_to_an_event(history: list[Step]) -> None:
    for _, message, events in run(history).messages:
        if isinstance(message, COMMANDS):
            assert events


@given(histories)
def test_a_refused_command_changes_nothing_but_the_log(history: list[Step]) -> None:
    state = State()
    for recorded in run(history).log:
        after = fold(state, recorded)
        if isinstance(recorded.entry.event, CommandRejected):
            moved = {"position": after.position, "time": after.time}
            assert after == state.model_copy(update=moved)
        state = after


@given(histories)
def test_no_node_is_given_more_than_it_has(history: list[Step]) -> None:
    state = State()
    for recorded in run(history).log:
        state = fold(state, recorded)
        event = recorded.entry.event
        if isinstance(event, InstancePlaced):
            for node_id in event.instance.node_ids:
                assert promised(state, node_id) <= capacity(state, node_id)


@given(histories, st.sampled_from(CARDS), st.integers(1, 100_000))
def test_a_placement_fits_beside_what_is_there(history: list[Step], card: ModelCard, context: int) -> None:
    state = run(history).state
    placement = place(state, PlacementRequest(card, context))
    if isinstance(placement, Placement):
        needed = needed_bytes(card, placement.context)
        assert sum(share.layers for share in placement.shares) == card.layers
        for share in placement.shares:
            part = -(-needed * share.layers // card.layers)
            assert promised(state, share.node.node_id) + part <= capacity(state, share.node.node_id)
            assert placement.engine in share.node.facts.engines


@given(histories)
def test_ranks_fail_together_for_one_reason_and_are_started_again_together(history: list[Step]) -> None:
    cluster = run(history)
    for _, message, events in cluster.messages:
        failed = [event for event in events if isinstance(event, RunnerFailed)]
        if isinstance(message, RunnerStatusSeen) and isinstance(message.status, Failed) and failed:
            placed = next(
                one.entry.event.instance
                for one in cluster.log
                if isinstance(one.entry.event, InstancePlaced)
                and message.runner_id in one.entry.event.instance.runner_ids
            )
            assert tuple(event.runner_id for event in failed) == placed.runner_ids
            assert len({(event.reason, event.retry_at) for event in failed}) == 1


@given(histories)
def test_nothing_is_given_to_an_instance_that_lacks_a_rank(history: list[Step]) -> None:
    state = State()
    for recorded in run(history).log:
        event = recorded.entry.event
        if isinstance(event, GenerationDispatched):
            assert is_ready(state, state.instances[event.instance_id])
        state = fold(state, recorded)
        if isinstance(event, GenerationDispatched):
            runners = [state.runners[one] for one in state.instances[event.instance_id].runner_ids]
            assert state.generations[event.task_id].processes == tuple(one.process for one in runners)


@given(histories)
def test_a_link_begins_and_ends_once(history: list[Step]) -> None:
    links: dict[InstanceId, InstanceId] = {}
    for recorded in (cluster := run(history)).log:
        event = recorded.entry.event
        if isinstance(event, InstancesLinked):
            assert event.decode_id not in links
            links[event.decode_id] = event.prefill_id
        elif isinstance(event, InstancesUnlinked):
            assert links.pop(event.decode_id) == event.prefill_id
    assert links == {decode_id: link.prefill_id for decode_id, link in cluster.state.prefill_links.items()}


@given(histories)
def test_no_instance_runs_more_than_its_slots(history: list[Step]) -> None:
    state = State()
    for recorded in run(history).log:
        state = fold(state, recorded)
        busy = Counter(one.instance_id for one in state.generations.values() if one.instance_id is not None)
        assert all(taken <= state.instances[instance_id].slots for instance_id, taken in busy.items())


@given(histories)
def test_every_generation_ends_once_or_is_still_there(history: list[Step]) -> None:
    cluster = run(history)
    queued = Counter(one.entry.event.task_id for one in cluster.log if isinstance(one.entry.event, GenerationQueued))
    ended = Counter(one.entry.event.task_id for one in cluster.log if isinstance(one.entry.event, GenerationFinished))
    assert all(times == 1 for times in queued.values())
    assert ended + Counter(cluster.state.generations.keys()) == queued


@given(histories)
def test_with_no_message_for_long_nothing_waits_for_ever(history: list[Step]) -> None:
    cluster = run(history)
    for _ in range(40):
        cluster.step(0, 9, 0b111)
    assert not cluster.state.generations
    assert not [one for one in cluster.state.runners.values() if one.status.type in WAITING]


@given(histories)
def test_a_node_that_is_seen_and_told_nothing_new_leaves_the_log_alone(history: list[Step]) -> None:
    cluster = run([*history, (2, 0, 1)])
    _, again, _ = cluster.messages[-1]
    assert react(cluster.state, again, cluster.now, cluster.new_id) == []


def promised(state: State, node_id: str) -> int:
    """Bytes that the instances on a node need."""
    on_node = (one for one in state.instances.values() if node_id in one.node_ids)
    return sum(promised_bytes(one, NodeId(node_id)) for one in on_node)


def capacity(state: State, node_id: str) -> float:
    """Bytes that models may take on a node."""
    facts = state.nodes[node_id].facts
    return facts.memory_bytes * (limits.UNIFIED_SHARE if any(gpu.unified for gpu in facts.gpus) else 1.0)
