"""What any released version wrote is read for ever, and leads to the State that it led to then."""

import json
from pathlib import Path

import pytest

from exo.domain.fold import fold
from exo.domain.invariants import violations
from exo.domain.messages.upcast import UPCASTERS, VERSIONS
from exo.domain.shape import Data
from exo.domain.state import State
from exo.log.replay import load_state, schema_digest, state_digest
from exo.log.store import LogStore
from exo.log.verify import verify
from tests.golden.files import Golden, goldens, restore, shapes_kept, shapes_now

each_version = pytest.mark.parametrize("golden", goldens(), ids=lambda golden: golden.version)


def differences(old: Data, new: Data, where: str = "State") -> list[str]:
    """Where two States differ in fields that both have."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = sorted(old.keys() & new.keys())
        return [text for name in both for text in differences(old[name], new[name], f"{where}.{name}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [text for at, (one, other) in pairs for text in differences(one, other, f"{where}[{at}]")]
    return [] if old == new else [f"{where} was {old!r}, is {new!r}"]


@each_version
async def test_the_log_of_a_released_version_leads_to_the_state_of_then(golden: Golden, tmp_path: Path) -> None:
    store = await LogStore.open(restore(golden, tmp_path / "exo.sqlite3"))
    state, facts = State(), json.loads(golden.facts.read_text())
    async for recorded in store.stream():
        state = fold(state, recorded)
        assert violations(state) == [], recorded
    assert state.position == facts["position"]
    assert await load_state(store) == state
    assert (await verify(store)).problems == ()
    await store.close()
    assert differences(json.loads(golden.state.read_text()), json.loads(state.model_dump_json())) == []
    if facts["schema"] == schema_digest():
        assert state_digest(state) == facts["digest"], (
            "the same events give another State now: raise FOLD in exo/domain/shape.py, so that snapshots which were "
            "made before are discarded"
        )


@each_version
def test_the_state_that_is_kept_is_the_one_that_was_meant(golden: Golden) -> None:
    facts = json.loads(golden.facts.read_text())
    kept = State.model_validate_json(golden.state.read_text()) if facts["schema"] == schema_digest() else None
    assert kept is None or state_digest(kept) == facts["digest"]


def test_there_is_a_golden_log() -> None:
    assert goldens()


@pytest.mark.parametrize("name", shapes_now())
def test_a_version_of_an_event_keeps_its_shape(name: str) -> None:
    kept = shapes_kept().get(name)
    assert kept is None or kept == shapes_now()[name], (
        f"{name} has another shape than what was written as this version: give it a new version, and an upcaster in "
        "exo/domain/messages/upcast.py. (If no release wrote it yet: make golden)"
    )


def test_every_shape_that_was_ever_written_is_still_read() -> None:
    for name in shapes_kept():
        event_type, number = name.split()
        assert event_type in VERSIONS, f"{event_type} was logged once, and is no event any more"
        lifted = [(event_type, version) in UPCASTERS for version in range(int(number), VERSIONS[event_type])]
        assert all(lifted), f"{name} was logged once, and no upcaster lifts it"
