"""Which damages of model folders a worker tells."""

import os
from pathlib import Path

from test_models_folder import model_folder

from exo.domain.ids import ModelId
from exo.domain.node import DamagedModel
from exo.models.store import Store
from exo.worker.models import settled

FIRST = DamagedModel(model_id=ModelId("a/b"), reason="model.safetensors has 1 bytes of 3")
NEXT = DamagedModel(model_id=ModelId("a/b"), reason="model.safetensors has 2 bytes of 3")


def test_a_damage_is_told_once_two_looks_have_found_it() -> None:
    assert settled([FIRST], [], []) == ()
    assert settled([FIRST], [FIRST], []) == (FIRST,)
    assert settled([], [FIRST], [FIRST]) == ()


def test_what_was_told_of_a_folder_stays_while_it_changes() -> None:
    assert settled([NEXT], [FIRST], []) == ()
    assert settled([NEXT], [FIRST], [FIRST]) == (FIRST,)
    assert settled([NEXT], [NEXT], [FIRST]) == (NEXT,)


def test_a_folder_that_is_being_copied_is_told_when_it_is_whole(tmp_path: Path) -> None:
    weights = model_folder(tmp_path / "one") / "model.safetensors"
    whole, store = weights.read_bytes(), Store(tmp_path, cards=())
    before: tuple[DamagedModel, ...] = ()
    for size in (100, 120, 140):
        weights.write_bytes(whole)
        os.truncate(weights, size)
        holdings, found = store.look()
        assert (len(found), holdings) == (1, ())
        assert settled(found, before, ()) == ()
        before = found
    weights.write_bytes(whole)
    holdings, found = store.look()
    assert (len(holdings), found) == (1, ())
