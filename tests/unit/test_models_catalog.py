"""The catalog's cards are sound, and names find them."""

import importlib.util
from pathlib import Path

import pytest

from exo.domain.ids import ModelId
from exo.domain.model_card import HubSource, ModelCard, WheelSource
from exo.errors import Rejected
from exo.models.catalog import catalog, embedded
from exo.models.families import SAME_AS, TENSOR_FAMILIES, supports_tensor
from exo.models.names import checked_id, folder_name, id_from_folder, resolve


@pytest.mark.parametrize("card", catalog(), ids=lambda card: card.short_name)
def test_each_card_fits_together(card: ModelCard) -> None:
    assert card.heads % card.kv_heads == 0
    assert card.head_dim % 8 == 0
    assert card.context % 1024 == 0
    assert card.license
    assert card.supports_tensor == supports_tensor(card.family)
    assert [source.repository for source in card.sources if isinstance(source, HubSource)] == [card.model_id]
    # Weights: at least the attention's, and each parameter of a layer is used by some of `hidden_size` columns.
    attention = card.layers * card.hidden_size * card.head_dim * 2 * (card.heads + card.kv_heads)
    bits = {"float32": 32, "bfloat16": 16, "4bit": 4.5, "mxfp4": 4.25}[card.quantization]
    assert card.weight_bytes > attention * bits / 8
    assert folder_name(card.model_id)


def test_ids_are_unique_and_the_embedded_model_comes_first() -> None:
    ids = [card.model_id for card in catalog()]
    assert len(set(ids)) == len(ids) >= 16
    assert catalog()[0] == embedded()
    assert isinstance(embedded().sources[0], WheelSource)
    assert embedded().quantization == "float32"


def test_a_name_finds_its_card_by_full_id_and_short_name_in_any_case() -> None:
    for name in ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m-instruct", " SMOLLM2-135M-INSTRUCT "):
        assert resolve(name, catalog()) == embedded()
    assert resolve("smollm2", catalog()) is None
    assert resolve("", catalog()) is None


def test_a_short_name_of_two_models_is_refused_with_both() -> None:
    twins = [embedded().model_copy(update={"model_id": ModelId(f"{owner}/Twin")}) for owner in ("b", "a")]
    with pytest.raises(Rejected, match="fits several models: say which of a/Twin, b/Twin") as refused:
        resolve("twin", twins)
    assert refused.value.code == "ambiguous_model"
    assert resolve("B/twin", twins) == twins[0]


def test_a_short_name_that_is_exact_wins_over_one_in_another_case() -> None:
    cards = [embedded().model_copy(update={"model_id": ModelId(name)}) for name in ("a/Twin", "b/twin")]
    assert resolve("twin", cards) == cards[1]


def test_folders_are_named_for_models_and_back() -> None:
    for card in catalog():
        assert id_from_folder(folder_name(card.model_id)) == card.model_id
    assert id_from_folder("my-model") == "my-model"


@pytest.mark.parametrize(
    "text", ["", "..", "../x", "/etc", "a/b/c", "a//b", "a/..", ".hidden", "a b", "a--b", "a\n", "x" * 300]
)
def test_an_id_that_could_leave_its_folder_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="is no model id"):
        checked_id(text)


def test_the_tensor_families_are_those_of_the_installed_mlx_lm() -> None:
    found = importlib.util.find_spec("mlx_lm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("mlx-lm is not installed")
    models = Path(found.submodule_search_locations[0]) / "models"
    for family in TENSOR_FAMILIES:
        assert "def shard(" in (models / f"{family}.py").read_text(), family
    for family, other in SAME_AS.items():
        assert not (models / f"{family}.py").exists(), family
        assert (models / f"{other}.py").exists()
