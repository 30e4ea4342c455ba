"""Cards from folders in Hugging Face's layout, and what is wrong with folders that are no model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from exo.domain.ids import ModelId
from exo.errors import Rejected
from exo.models.config import STATE_SPACE_CONTEXT
from exo.models.folder import INDEX_FILE, card_from_folder, is_complete, what_is_missing
from exo.models.safetensors_file import read_header

ID = ModelId("some/model")
CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def model_folder(path: Path, config: dict[str, Any] | None = None, dtype: str = "float16", shards: int = 1) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    (path / "tokenizer.json").write_text("{}")
    names = ["model.safetensors"] if shards == 1 else [f"model-{i:05}.safetensors" for i in range(shards)]
    for index, name in enumerate(names):
        save_file({f"layer.{index}": np.ones((8, 16), dtype)}, path / name)
    if shards > 1:
        index = {"weight_map": {f"layer.{i}": name for i, name in enumerate(names)}}
        (path / INDEX_FILE).write_text(json.dumps(index))
    return path


def test_a_card_has_the_folders_figures(tmp_path: Path) -> None:
    card = card_from_folder(model_folder(tmp_path, shards=3), ID)
    assert card.weight_bytes == 3 * 8 * 16 * 2
    assert (card.layers, card.heads, card.kv_heads, card.head_dim, card.context) == (4, 4, 2, 16, 2048)
    assert (card.family, card.quantization, card.supports_tensor) == ("qwen3", "float16", True)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, ("float16", "")),
        ({"quantization": {"group_size": 64, "bits": 4}, "quantization_config": {"bits": 4}}, ("4bit", "mlx")),
        ({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}, ("mxfp4", "mlx")),
        ({"quantization_config": {"quant_method": "mxfp4"}}, ("mxfp4", "mxfp4")),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, ("8bit", "gptq")),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, ("8bit", "fp8")),
    ],
)
def test_the_quantization_is_read(tmp_path: Path, extra: dict[str, Any], expected: tuple[str, str]) -> None:
    card = card_from_folder(model_folder(tmp_path, {**CONFIG, **extra}), ID)
    assert (card.quantization, card.quantized_by) == expected


def test_an_unknown_quantization_is_refused(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, {**CONFIG, "quantization_config": {"quant_method": "quip"}})
    with pytest.raises(Rejected, match=r"config\.json: weights quantized by 'quip' .*: fetch an MLX conversion"):
        card_from_folder(folder, ID)


def test_the_language_part_of_a_multimodal_model_is_read(tmp_path: Path) -> None:
    config = {"model_type": "gemma3", "text_config": {**CONFIG, "model_type": "gemma3_text", "head_dim": 32}}
    card = card_from_folder(model_folder(tmp_path, config), ID)
    assert (card.family, card.layers, card.head_dim) == ("gemma3", 4, 32)


MAMBA2 = {
    "model_type": "mamba2",
    "num_hidden_layers": 24,
    "hidden_size": 768,
    "num_heads": 24,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 1,
}


@pytest.mark.parametrize(("extra", "context"), [({}, STATE_SPACE_CONTEXT), ({"max_seq_len": 2048}, 2048)])
def test_a_state_space_model_without_attention_has_a_card(tmp_path: Path, extra: dict[str, Any], context: int) -> None:
    card = card_from_folder(model_folder(tmp_path, {**MAMBA2, **extra}), ID)
    assert (card.layers, card.heads, card.kv_heads, card.head_dim, card.context) == (24, 24, 1, 64, context)
    state = 24 * 24 * 64 * 128 * 2
    assert card.kv_bytes(8192) > state


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings"])
@pytest.mark.parametrize("value", [None, 0, -3, "many", True])
def test_a_configuration_without_a_figure_is_refused_by_its_key(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(Rejected, match=rf"config\.json says no `{key}` above zero: add it"):
        card_from_folder(model_folder(tmp_path, {**CONFIG, key: value}), ID)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_malformed_configuration_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    folder = model_folder(tmp_path)
    (folder / "config.json").write_text(text)
    with pytest.raises(Rejected, match=r"config\.json"):
        card_from_folder(folder, ID)


def test_a_folder_is_complete_only_with_every_part(tmp_path: Path) -> None:
    assert is_complete(model_folder(tmp_path / "whole", shards=2))
    for name in ("config.json", "tokenizer.json", "model-00001.safetensors"):
        folder = model_folder(tmp_path / f"without-{name}", shards=2)
        (folder / name).unlink()
        assert not is_complete(folder)
        assert "missing" in str(what_is_missing(folder)) or "no tokenizer" in str(what_is_missing(folder))


def test_a_shard_that_is_cut_anywhere_makes_the_folder_incomplete(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, shards=2)
    shard = folder / "model-00001.safetensors"
    content = shard.read_bytes()
    for end in range(len(content)):
        shard.write_bytes(content[:end])
        assert not is_complete(folder)
    shard.write_bytes(content)
    assert is_complete(folder)


def test_an_index_that_points_outside_its_folder_is_refused(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, shards=2)
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    assert "no usable `weight_map`" in str(what_is_missing(folder))


@pytest.mark.parametrize(
    "entry",
    [{"dtype": "F32"}, {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}, [], {"dtype": "F32", "shape": [-1]}],
)
def test_a_malformed_weight_header_is_refused(tmp_path: Path, entry: object) -> None:
    text = json.dumps({"a": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(Rejected, match="'a' in a way that is no safetensors"):
        read_header(tmp_path / "model.safetensors")
