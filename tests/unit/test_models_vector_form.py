"""What a model's files say of its vectors, and what a request may ask for then."""

import json
from pathlib import Path
from typing import Any

import pytest

from exo.domain.embedding import EmbeddingParams
from exo.errors import Rejected
from exo.models.hub import needed_files
from exo.models.vector_form import VectorForm, read_vector_form

WIDTH = 96


def form_of(folder: Path, config: dict[str, Any], modules: object = None, pooling: object = None) -> VectorForm:
    (folder / "1_Pooling").mkdir()
    for name, content in (("config.json", config), ("modules.json", modules), ("1_Pooling/config.json", pooling)):
        if content is not None:
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return read_vector_form(folder)


def chosen(form: VectorForm, **params: Any) -> tuple[str, int]:
    return form.chosen(EmbeddingParams(**params), WIDTH)


def refused(form: VectorForm, **params: Any) -> Rejected:
    with pytest.raises(Rejected) as refusal:
        chosen(form, **params)
    return refusal.value


def test_a_model_that_says_nothing_has_the_mean_and_all_its_dimensions(tmp_path: Path) -> None:
    form = form_of(tmp_path, {})
    assert chosen(form) == chosen(form, dimensions=WIDTH) == ("mean", WIDTH)
    assert chosen(form, pooling="last") == ("last", WIDTH)
    assert refused(form, dimensions=WIDTH - 1).param == "dimensions"


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False}, "mean"),
        ({"word_embedding_dimension": 96, "pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_the_models_own_pooling_is_taken(tmp_path: Path, pooling: object, expected: str) -> None:
    assert chosen(form_of(tmp_path, {}, pooling=pooling)) == (expected, WIDTH)


@pytest.mark.parametrize(
    ("pooling", "named"),
    [
        ({"pooling_mode_cls_token": True}, "cls_token"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean_tokens and max_tokens"),
    ],
)
def test_another_pooling_is_refused_by_its_name_unless_one_is_chosen(
    tmp_path: Path, pooling: object, named: str
) -> None:
    form = form_of(tmp_path, {}, pooling=pooling)
    refusal = refused(form)
    assert refusal.param == "pooling"
    assert f"'{named}'" in refusal.reason
    assert chosen(form, pooling="last") == ("last", WIDTH)


@pytest.mark.parametrize(
    ("config", "good", "bad"),
    [
        ({"is_matryoshka": True}, (1, 50, WIDTH), (WIDTH + 1,)),
        ({"matryoshka_dimensions": [32, 64]}, (32, 64, WIDTH), (31, 33, 128)),
    ],
)
def test_fewer_dimensions_where_the_model_says_so(
    tmp_path: Path, config: dict[str, Any], good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    form = form_of(tmp_path, config)
    assert [chosen(form, dimensions=one)[1] for one in good] == list(good)
    assert {refused(form, dimensions=one).param for one in bad} == {"dimensions"}


@pytest.mark.parametrize(
    ("config", "modules", "pooling"),
    [
        ({"use_bidirectional_attention": True}, None, None),
        ({"text_config": {"use_bidirectional_attention": True}}, None, None),
        ({"is_causal": False}, None, None),
        (
            {},
            [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Dense"}],
            None,
        ),
        ({}, "no JSON", None),
        ({}, [5], None),
        ({}, {"type": "x"}, None),
        ({}, None, "no JSON"),
        ({}, None, [1]),
    ],
)
def test_a_model_whose_vectors_need_more_is_refused_whatever_is_asked_for(
    tmp_path: Path, config: dict[str, Any], modules: object, pooling: object
) -> None:
    form = form_of(tmp_path, config, modules, pooling)
    assert refused(form, pooling="mean").code == "embeddings_not_supported"


def test_modules_that_are_done_here_are_no_hindrance(tmp_path: Path) -> None:
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"idx": at, "type": f"sentence_transformers.models.{kind}"} for at, kind in enumerate(kinds)]
    assert chosen(form_of(tmp_path, {}, modules, {"pooling_mode": "lasttoken"})) == ("last", WIDTH)


def test_a_pooling_that_was_not_fetched_is_not_guessed(tmp_path: Path) -> None:
    refusal = refused(form_of(tmp_path, {}, [{"type": "sentence_transformers.models.Pooling"}]))
    assert refusal.code == "embeddings_not_supported"
    assert "1_Pooling/config.json cannot be read" in refusal.reason


def test_the_file_about_pooling_is_fetched_with_the_model() -> None:
    names = ["config.json", "1_Pooling/config.json", "original/config.json", "model.safetensors", "modules.json"]
    assert needed_files(names) == ["1_Pooling/config.json", "config.json", "model.safetensors", "modules.json"]
