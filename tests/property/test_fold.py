"""The fold over every history that a cluster can have."""

import pytest
from cluster_histories import NODES, Step, histories, run
from hypothesis import given
from hypothesis import strategies as st

from exo.domain.fold import OutOfOrder, fold
from exo.domain.invariants import violations
from exo.domain.messages.events import Entry, MasterElected, Recorded
from exo.domain.state import State
from exo.log import codec


@given(histories)
def test_invariants_hold_after_every_event(history: list[Step]) -> None:
    state = State()
    for recorded in run(history).log:
        state = fold(state, recorded)
        assert violations(state) == [], recorded


@given(histories, st.integers(0, 200))
def test_a_snapshot_and_the_tail_give_the_same_bytes_as_a_full_replay(history: list[Step], at: int) -> None:
    cluster = run(history)
    at = min(at, len(cluster.log))
    early = State()
    for recorded in cluster.log[:at]:
        early = fold(early, recorded)
    late = State.model_validate_json(early.model_dump_json())
    assert late == early
    assert late.model_dump_json() == early.model_dump_json()
    for recorded in cluster.log[at:]:
        late = fold(late, recorded)
    assert late.model_dump_json() == cluster.state.model_dump_json()


@given(histories)
def test_rows_of_the_log_give_back_the_events(history: list[Step]) -> None:
    cluster = run(history)
    rows: list[codec.StoredEvent] = []
    chain = codec.GENESIS
    for recorded in cluster.log:
        rows.append(codec.encode(recorded, chain))
        assert codec.follows(rows[-1], chain)
        chain = rows[-1].chain
    assert codec.decode(rows) == cluster.log


@given(histories, st.integers(-3, 3))
def test_only_the_next_position_is_folded(history: list[Step], offset: int) -> None:
    state = run(history).state
    entry = Entry(
        recorded_at=state.time,
        cause_id=None,
        source="test",
        event=MasterElected(node_id=NODES[0], epoch=state.epoch + 1),
    )
    recorded = Recorded(position=state.position + 1 + offset, entry=entry)
    if offset == 0:
        assert fold(state, recorded).epoch == state.epoch + 1
        return
    with pytest.raises(OutOfOrder) as refused:
        fold(state, recorded)
    assert (refused.value.expected, refused.value.got) == (state.position + 1, recorded.position)


@given(histories, histories)
def test_events_of_another_history_never_make_the_fold_raise(history: list[Step], other: list[Step]) -> None:
    state = run(history).state
    for recorded in run(other).log:
        state = fold(state, Recorded(position=state.position + 1, entry=recorded.entry))
