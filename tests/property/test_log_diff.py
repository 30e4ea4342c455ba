"""Differences between any two moments of any history."""

import json

from cluster_histories import Step, histories, run
from hypothesis import given
from hypothesis import strategies as st

from exo.domain.fold import fold
from exo.domain.state import State
from exo.log.explain.diff import GROUPS, diff, leaves


def two_moments(history: list[Step], first: int, second: int) -> tuple[State, State]:
    states = [State()]
    for recorded in run(history).log:
        states.append(fold(states[-1], recorded))
    return states[first % len(states)], states[second % len(states)]


def members(state: State, group: str) -> dict[str, dict[str, object]]:
    plain = state.model_dump(mode="json")[group]
    return {one["task_id"]: one for one in plain} if group == "ended" else plain


@given(histories, st.integers(0, 300), st.integers(0, 300))
def test_a_difference_leads_from_one_state_to_the_other(history: list[Step], first: int, second: int) -> None:
    before, after = two_moments(history, first, second)
    found = diff(before, after)
    for group in GROUPS:
        changes = found.groups.get(group)
        was = members(before, group)
        expected = {identifier: dict(leaves(one)) for identifier, one in members(after, group).items()}
        left = {identifier: dict(leaves(one)) for identifier, one in was.items()}
        if changes is not None:
            for identifier in changes.removed:
                del left[identifier]
            for identifier, one in changes.added.items():
                assert identifier not in was
                left[identifier] = dict(leaves(one))
            for identifier, values in changes.changed.items():
                assert all(left[identifier].get(path) == old != new for path, (old, new) in values.items())
                left[identifier] |= {path: new for path, (_, new) in values.items()}
        assert {identifier: _said(one) for identifier, one in left.items()} == {
            identifier: _said(one) for identifier, one in expected.items()
        }
    assert ("epoch" in found.cluster) == (before.epoch != after.epoch)


@given(histories, st.integers(0, 300), st.integers(0, 300))
def test_the_way_back_is_the_difference_turned_round(history: list[Step], first: int, second: int) -> None:
    before, after = two_moments(history, first, second)
    there, back = diff(before, after), diff(after, before)
    assert there.is_backwards == (before.position > after.position)
    assert there.groups.keys() == back.groups.keys()
    for group, changes in there.groups.items():
        assert (changes.added, changes.removed) == (back.groups[group].removed, back.groups[group].added)
        turned = {
            identifier: {path: (new, old) for path, (old, new) in values.items()}
            for identifier, values in changes.changed.items()
        }
        assert turned == back.groups[group].changed
    json.dumps(there.plain())


def _said(fields: dict[str, object]) -> dict[str, object]:
    """A value of None, an empty list, and one that is not there are the same in a difference."""
    return {path: value for path, value in fields.items() if value not in (None, [], {})}
