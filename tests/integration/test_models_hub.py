"""Downloads by the real hub client from a small server that speaks the hub's few endpoints on a free port."""

from pathlib import Path

import pytest
from hub_server import CHUNK_BYTES, FILES, REPOSITORY, Hub

from exo.domain.ids import ModelId
from exo.domain.model_card import HubSource
from exo.errors import Rejected
from exo.models.catalog import embedded
from exo.models.folder import card_from_folder
from exo.models.hub import download, needed_files
from exo.models.hub_card import fetch_card
from exo.models.hub_search import search_hub
from exo.models.progress import Cancelled, Progress
from exo.models.store import Store
from exo.models.vector_form import read_vector_form

SOURCE = HubSource(repository=REPOSITORY)


def test_only_the_needed_files_come(hub: Hub, tmp_path: Path) -> None:
    seen: list[Progress] = []
    download(SOURCE, tmp_path / "model", seen.append, endpoint=hub.url)
    expected = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == expected
    assert needed_files(list(FILES)) == expected
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    total = sum(len(FILES[name]) for name in expected)
    assert seen[-1] == Progress("verifying", total, total)


def test_the_store_prepares_a_model_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    card = embedded().model_copy(update={"model_id": ModelId("owner/model"), "sources": (SOURCE,), "license": "mit"})
    store = Store(tmp_path / "models", cards=(card,), hub_endpoint=hub.url)
    assert [held.status for held in store.holdings()] == ["obtainable"]
    assert store.prepare(card) == tmp_path / "models" / "owner--model"
    (held,) = store.holdings()
    assert (held.status, held.card.layers, held.card.license) == ("ready", 2, "mit")
    assert held.card.sources == (SOURCE,)


def test_a_cancelled_download_is_resumed_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.hold.clear()
    seen: list[Progress] = []

    def half_arrived() -> bool:
        return hub.half_sent.is_set() and bool(seen) and seen[-1].done_bytes > CHUNK_BYTES

    with pytest.raises(Cancelled):
        download(SOURCE, tmp_path / "model", seen.append, endpoint=hub.url, cancelled=half_arrived)
    hub.hold.set()
    download(SOURCE, tmp_path / "model", endpoint=hub.url)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    again = [asked for name, asked in hub.fetched if name == "model.safetensors"]
    assert again[0] is None
    assert str(again[-1]).startswith("bytes=")


def test_what_the_model_says_of_its_vectors_comes_along(hub: Hub, tmp_path: Path) -> None:
    hub.files["1_Pooling/config.json"] = b'{"pooling_mode_lasttoken": true}'
    hub.files["2_Dense/config.json"] = b"{}"
    download(SOURCE, tmp_path / "model", endpoint=hub.url)
    assert read_vector_form(tmp_path / "model").pooling == "last"
    assert not (tmp_path / "model" / "2_Dense").exists()


def test_files_of_another_revision_are_not_mixed_in(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / ".revision").write_text("an older commit")
    (folder / "config.json").write_text("{}")
    (folder / "vocab.json").write_text("{}")
    download(SOURCE, folder, endpoint=hub.url)
    assert (folder / "config.json").read_bytes() == FILES["config.json"]
    assert sorted(path.name for path in folder.iterdir()) == needed_files(list(FILES))


def test_content_that_differs_from_what_the_hub_announces_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.announced = "0" * 64
    with pytest.raises(Rejected, match="came with other content than the hub announces"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


def test_too_little_disk_is_refused_before_the_weights_are_fetched(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"downloading owner/model needs [\d,]+ bytes in .*, and 10 are free"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url, free=lambda _folder: 10)
    assert hub.fetched == []


def test_a_repository_without_weights_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files = {name: data for name, data in FILES.items() if not name.endswith(".safetensors")}
    with pytest.raises(Rejected, match="has no safetensors weights"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


def test_weights_that_are_cut_on_the_hub_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files["model.safetensors"] = FILES["model.safetensors"][:-8]
    with pytest.raises(Rejected, match=r"no complete model: .*model\.safetensors has [\d,]+ bytes of [\d,]+"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


@pytest.mark.parametrize(
    ("status", "message"), [(401, "asks for a licence: accept it"), (404, "is not on the hub, or is private")]
)
def test_a_refusal_of_the_hub_is_told_with_what_to_do(hub: Hub, tmp_path: Path, status: int, message: str) -> None:
    hub.status = status
    with pytest.raises(Rejected, match=message):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


def test_a_hub_that_cannot_be_reached_is_told_with_the_networks_reason(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"^the hub cannot be reached \(.*Connect.*EXO_OFFLINE=1 .*trying$"):
        download(SOURCE, tmp_path / "model", endpoint="http://127.0.0.1:9")


def test_the_card_of_a_model_is_known_before_its_weights_are_fetched(hub: Hub, tmp_path: Path) -> None:
    card = fetch_card(ModelId(REPOSITORY), tmp_path, endpoint=hub.url)
    assert {name for name, _ in hub.fetched} == {"config.json", "tokenizer_config.json", "chat_template.jinja"}
    download(SOURCE, tmp_path / "model", endpoint=hub.url)
    real = card_from_folder(tmp_path / "model", ModelId(REPOSITORY))
    assert (card.license, card.sources, card.quantization) == ("mit", (SOURCE,), "float32")
    assert real.weight_bytes < card.weight_bytes < real.weight_bytes * 1.001
    same = {"license", "sources", "weight_bytes"}
    assert card.model_dump(exclude=same) == real.model_dump(exclude=same)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.safetensors": None, "consolidated.safetensors": None}, "has no safetensors weights"),
        ({"config.json": None}, r"has no config\.json"),
        ({"config.json": b"{}"}, r"config\.json of owner/model says no `num_attention_heads` above zero"),
        ({"config.json": b"[]"}, "holds no JSON object"),
    ],
)
def test_what_is_no_model_has_no_card(hub: Hub, tmp_path: Path, changes: dict[str, bytes | None], message: str) -> None:
    changed: dict[str, bytes | None] = {**FILES, **changes}
    hub.files = {name: data for name, data in changed.items() if data is not None}
    with pytest.raises(Rejected, match=message) as refused:
        fetch_card(ModelId(REPOSITORY), tmp_path, endpoint=hub.url)
    assert refused.value.param == "model_id"


@pytest.mark.parametrize(("status", "code"), [(401, "hub_refused"), (404, "model_not_found")])
def test_a_refusal_of_the_hub_has_a_code_of_its_own(hub: Hub, tmp_path: Path, status: int, code: str) -> None:
    hub.status = status
    with pytest.raises(Rejected) as refused:
        fetch_card(ModelId(REPOSITORY), tmp_path, endpoint=hub.url)
    assert refused.value.code == code


def test_models_are_found_by_words(hub: Hub, tmp_path: Path) -> None:
    found = search_hub("qwen 4bit", 5, tmp_path, endpoint=hub.url)
    assert [(one.id, one.downloads, one.tags) for one in found] == [(REPOSITORY, 7, ["mlx"]), ("other/model-2", 3, [])]
    (asked,) = hub.searched
    assert (asked["search"], asked["limit"], asked["sort"]) == (["qwen 4bit"], ["5"], ["downloads"])
    assert asked["filter"] == ["safetensors", "text-generation"]


def test_a_hub_that_is_away_finds_nothing_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="the hub cannot be reached") as refused:
        search_hub("qwen", 5, tmp_path, endpoint="http://127.0.0.1:9")
    assert refused.value.code == "hub_unreachable"
