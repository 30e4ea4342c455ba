"""From a GGUF file to a model folder: the numbers, the configuration, the refusals, and nothing half-written."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from test_models_gguf_file import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    TOKENS,
    random_tensors,
    tensor_shapes,
    write_gguf,
)

from exo.domain.model_card import ModelCard
from exo.errors import Rejected
from exo.models.folder import card_from_folder, what_is_missing
from exo.models.gguf.conversion import import_gguf
from exo.models.gguf.llama import llama3_factors, unpermute
from exo.models.progress import Cancelled, Progress


def permute(weights: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's own (`LlamaModel.permute` in convert_hf_to_gguf.py)."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


@given(heads=st.integers(1, 9), half=st.integers(1, 8), columns=st.integers(1, 5))
def test_unpermute_is_the_inverse_of_llama_cpps_permute(heads: int, half: int, columns: int) -> None:
    rows = np.arange(heads * 2 * half * columns, dtype=np.float32).reshape(heads * 2 * half, columns)
    assert np.array_equal(unpermute(permute(rows, heads), heads), rows)


def test_the_folder_holds_the_tensors_in_hugging_face_order(tmp_path: Path) -> None:
    tensors = random_tensors(tensor_shapes(tied=False))
    card = import_gguf(write_gguf(tmp_path / "file.gguf", tensors), tmp_path / "model")
    found = load_file(tmp_path / "model" / "model.safetensors")
    for name, heads in (("q", HEADS), ("k", KV_HEADS)):
        ours = found[f"model.layers.1.self_attn.{name}_proj.weight"]
        assert np.array_equal(permute(ours, heads), tensors[f"blk.1.attn_{name}.weight"])
    assert np.array_equal(found["model.layers.0.mlp.down_proj.weight"], tensors["blk.0.ffn_down.weight"])
    assert np.array_equal(found["lm_head.weight"], tensors["output.weight"])
    assert len(found) == len(tensors)
    assert card.weight_bytes == sum(tensor.nbytes for tensor in found.values())
    assert not json.loads((tmp_path / "model" / "config.json").read_text())["tie_word_embeddings"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
def test_quantized_tensors_are_dequantized(tmp_path: Path, kind: str, dtype: str) -> None:
    tensors = random_tensors(tensor_shapes())
    quantization = GGMLQuantizationType[kind]
    import_gguf(write_gguf(tmp_path / "file.gguf", tensors, quantization), tmp_path / "model", dtype)  # type: ignore[arg-type]
    found = load_file(tmp_path / "model" / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]
    source = tensors["blk.0.ffn_up.weight"]
    raw = source.astype(np.float16) if kind == "F16" else quantize(source, quantization)
    assert found.dtype == np.dtype(dtype)
    assert np.array_equal(found, dequantize(raw, quantization).astype(dtype))


def test_bfloat16_is_rounded_to_its_own_bits(tmp_path: Path) -> None:
    import_gguf(write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes())), tmp_path / "model", "bfloat16")
    card = card_from_folder(tmp_path / "model", "some/model")  # type: ignore[arg-type]
    assert card.quantization == "bfloat16"
    assert what_is_missing(tmp_path / "model") is None


def test_the_card_is_kept_and_agrees_with_the_folder(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()), **{"general.license": "mit"})
    card = import_gguf(file, tmp_path / "model", model_id="owner/model")  # type: ignore[arg-type]
    assert ModelCard.model_validate_json((tmp_path / "model" / "exo.json").read_bytes()) == card
    assert card_from_folder(tmp_path / "model", card.model_id).model_copy(update={"license": "mit"}) == card
    assert (card.heads, card.kv_heads, card.head_dim, card.hidden_size) == (HEADS, KV_HEADS, HEAD_DIM, HIDDEN)
    assert (card.license, card.quantization, card.context) == ("mit", "float32", 512)


def test_llama_3_rope_factors_become_its_configuration(tmp_path: Path) -> None:
    tensors = random_tensors(tensor_shapes())
    tensors["rope_freqs.weight"] = np.array(llama3_factors(HEAD_DIM, 500000.0, 32.0), np.float32)
    file = write_gguf(tmp_path / "file.gguf", tensors, **{"llama.rope.freq_base": 500000.0})
    import_gguf(file, tmp_path / "model")
    scaling = json.loads((tmp_path / "model" / "config.json").read_text())["rope_scaling"]
    assert scaling["rope_type"] == "llama3"
    assert (scaling["factor"], scaling["original_max_position_embeddings"]) == (32.0, 8192)


def test_other_rope_factors_are_refused(tmp_path: Path) -> None:
    tensors = random_tensors(tensor_shapes())
    tensors["rope_freqs.weight"] = np.linspace(1, 9, HEAD_DIM // 2, dtype=np.float32)
    with pytest.raises(Rejected, match="not those of Llama 3"):
        import_gguf(write_gguf(tmp_path / "file.gguf", tensors), tmp_path / "model")


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    seen: list[Progress] = []
    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()))
    card = import_gguf(file, tmp_path / "model", on_progress=seen.append)
    assert [progress.done_bytes for progress in seen] == sorted(progress.done_bytes for progress in seen)
    assert seen[-1] == Progress("converting", card.weight_bytes, card.weight_bytes)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"llama.expert_count": 8}, "with 8 experts"),
        (
            {"tokenizer.ggml.pre": "jais-2"},
            "pre-tokenizer 'jais-2' is not known .*smollm.*take the model's safetensors",
        ),
        ({"tokenizer.ggml.model": "rwkv"}, "tokenizer 'rwkv' is not read from GGUF"),
        ({"llama.block_count": None}, "'llama.block_count' is missing, where a whole number"),
        ({"llama.block_count": 4_000_000}, "where a whole number from 1 to 1,024"),
        ({"llama.block_count": 3}, r"has no tensor 'blk\.2\."),
        ({"llama.embedding_length": 512}, "has the shape|do not fit together"),
        ({"llama.attention.head_count_kv": 3}, "do not fit together"),
        ({"llama.rope.scaling.type": "yarn"}, "RoPE scaling 'yarn' is not read"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "where a number above zero"),
        ({"tokenizer.ggml.tokens": [*TOKENS[:-1], TOKENS[0]]}, "names a token twice"),
        ({"tokenizer.ggml.merges": ["t h", "th"]}, "the merge 'th' is no pair of its tokens"),
        ({"tokenizer.ggml.eos_token_id": 5_000_000}, "eos_token_id"),
        ({"tokenizer.ggml.eos_token_id": None}, "eos_token_id' is missing"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "a list of [0-9]+ numbers"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_reason(
    tmp_path: Path, replaced: dict[str, object], message: str
) -> None:
    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()), **replaced)  # type: ignore[arg-type]
    with pytest.raises(Rejected, match=message):
        import_gguf(file, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["file.gguf"]


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()), architecture="mamba")
    with pytest.raises(Rejected, match="architecture 'mamba'"):
        import_gguf(file, tmp_path / "model")


def test_a_tensor_that_no_llama_has_is_refused(tmp_path: Path) -> None:
    tensors = random_tensors({**tensor_shapes(), "blk.0.attn_q.bias": (HIDDEN,)})
    with pytest.raises(Rejected, match=r"has the tensor 'blk\.0\.attn_q\.bias', which no llama has"):
        import_gguf(write_gguf(tmp_path / "file.gguf", tensors), tmp_path / "model")


def test_too_little_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()))
    with pytest.raises(Rejected, match=r"needs [\d,]+ bytes in .*, and 1,000 are free: free [\d,]+ bytes there"):
        import_gguf(file, tmp_path / "deep" / "model", free=lambda _folder: 1000)
    assert not (tmp_path / "deep").exists()


def test_a_destination_that_exists_is_refused_and_kept(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("mine")
    with pytest.raises(Rejected, match="exists already: delete that model first"):
        import_gguf(file, tmp_path / "model")
    assert (tmp_path / "model" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_interrupted_import_leaves_nothing(tmp_path: Path, interruption: BaseException) -> None:
    def interrupt(_progress: Progress) -> None:
        raise interruption

    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()))
    with pytest.raises(type(interruption)):
        import_gguf(file, tmp_path / "model", on_progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["file.gguf"]


def test_a_cancelled_import_leaves_nothing(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()))
    seen: list[Progress] = []
    with pytest.raises(Cancelled):
        import_gguf(file, tmp_path / "model", on_progress=seen.append, cancelled=lambda: len(seen) > 2)
    assert len(seen) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["file.gguf"]
