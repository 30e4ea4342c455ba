"""The llama family in GGUF: its hyperparameters, its tensors, and what they are called in Hugging Face's layout.

Names and meanings: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp's `convert_hf_to_gguf.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from exo.errors import Rejected
from exo.models.gguf.file import GgufFile, GgufTensor
from exo.models.json_file import JsonObject

T = TypeVar("T", bound=np.generic)

ARCHITECTURE = "llama"
ROPE_FACTORS = "rope_freqs.weight"
MOST_LAYERS = 1024
LLAMA3_CONTEXT = 8192
LLAMA3_LOW, LLAMA3_HIGH = 1.0, 4.0
"""`original_max_position_embeddings`, `low_freq_factor` and `high_freq_factor` of every Llama 3.1 to 3.3."""


@dataclass(frozen=True, slots=True)
class Llama:
    """Hyperparameters, as a `LlamaConfig` has them."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context: int
    epsilon: float
    rope_theta: float
    rope_scaling: JsonObject | None
    tied: bool

    def config(self, dtype: str) -> JsonObject:
        """`config.json`, without the token ids."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.intermediate,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": self.epsilon,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "rope_scaling": self.rope_scaling,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": self.tied,
            "dtype": dtype,
        }


@dataclass(frozen=True, slots=True)
class Move:
    """One tensor from its GGUF place to its new name. `permuted`: its rows are in llama.cpp's RoPE order."""

    source: GgufTensor
    name: str
    permuted: bool


def llama_of(file: GgufFile) -> Llama:
    """The hyperparameters. Raises Rejected for another architecture, experts, or figures that do not fit together."""
    data = file.metadata
    architecture = data.text("general.architecture")
    experts = data.whole("llama.expert_count", 0, least=0)
    if architecture != ARCHITECTURE or experts:
        raise Rejected(
            f"{file.path} holds the architecture {architecture!r} with {experts} experts; "
            "GGUF files of the dense llama family are read: take the model's safetensors from the hub instead"
        )
    hidden = data.whole("llama.embedding_length")
    heads = data.whole("llama.attention.head_count")
    head_dim = data.whole("llama.attention.key_length", hidden // heads or None)
    kv_heads = data.whole("llama.attention.head_count_kv", heads, most=heads)
    if heads % kv_heads or data.whole("llama.rope.dimension_count", head_dim) != head_dim or head_dim % 2:
        raise Rejected(
            f"{file.path}: {heads} heads, {kv_heads} key/value heads and a head size of {head_dim} do not fit together "
            "as in a llama: take another file of this model"
        )
    return Llama(
        layers=data.whole("llama.block_count", most=MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=data.whole("llama.feed_forward_length"),
        vocabulary=len(data.texts("tokenizer.ggml.tokens")),
        context=data.whole("llama.context_length"),
        # Stored as float32: 1e-5 comes back as 9.99999974e-06.
        epsilon=float(f"{data.number('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        rope_theta=data.number("llama.rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(file, head_dim),
        tied="output.weight" not in file.tensors,
    )


def _rope_scaling(file: GgufFile, head_dim: int) -> JsonObject | None:
    data = file.metadata
    kind = data.text("llama.rope.scaling.type", "none")
    if ROPE_FACTORS in file.tensors:
        return _llama3_scaling(file, file.tensors[ROPE_FACTORS], head_dim)
    if kind == "none":
        return None
    if kind == "linear":
        return {"type": "linear", "rope_type": "linear", "factor": data.number("llama.rope.scaling.factor")}
    raise Rejected(f"{file.path}: RoPE scaling {kind!r} is not read from GGUF: take the model's safetensors instead")


def _llama3_scaling(file: GgufFile, tensor: GgufTensor, head_dim: int) -> JsonObject:
    """The configuration that gives the file's per-frequency factors, which are all that GGUF keeps of it."""
    if tensor.shape != (head_dim // 2,) or tensor.type.name != "F32":
        raise Rejected(f"{file.path}: {ROPE_FACTORS} has the shape {tensor.shape}: take another file of this model")
    factors = file.rows(tensor).reshape(-1).view("<f4").astype(np.float64)
    theta = file.metadata.number("llama.rope.freq_base", 10000.0)
    factor = float(factors.max())
    if not np.allclose(factors, llama3_factors(head_dim, theta, factor), rtol=1e-3):
        raise Rejected(f"{file.path}: its RoPE factors are not those of Llama 3: take the model's safetensors instead")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_CONTEXT,
    }


def llama3_factors(head_dim: int, theta: float, factor: float) -> Sequence[float]:
    """By how much Llama 3 divides each of `head_dim / 2` frequencies (llama.cpp's `generate_extra_tensors`)."""
    result: list[float] = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (index / head_dim)
        if wavelength < LLAMA3_CONTEXT / LLAMA3_HIGH:
            result.append(1.0)
        elif wavelength > LLAMA3_CONTEXT / LLAMA3_LOW:
            result.append(factor)
        else:
            smooth = (LLAMA3_CONTEXT / wavelength - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)
            result.append(1 / ((1 - smooth) / factor + smooth))
    return result


def moves(file: GgufFile, llama: Llama) -> list[Move]:
    """Every tensor with its new name. Raises Rejected for a missing tensor, a wrong shape, or one that is not known."""
    expected = _expected(llama)
    unknown = sorted(set(file.tensors) - set(expected) - {ROPE_FACTORS})
    missing = sorted(set(expected) - set(file.tensors))
    if unknown or missing:
        what = f"has no tensor {missing[0]!r}" if missing else f"has the tensor {unknown[0]!r}, which no llama has"
        raise Rejected(f"{file.path} {what}: take another file of this model, or its safetensors")
    for name, (_, shape, _) in expected.items():
        if file.tensors[name].shape != shape:
            raise Rejected(
                f"{file.path}: {name!r} has the shape {file.tensors[name].shape}, where {shape} fits its metadata"
            )
    return [Move(file.tensors[name], target, permuted) for name, (target, _, permuted) in expected.items()]


def _expected(llama: Llama) -> dict[str, tuple[str, tuple[int, ...], bool]]:
    """GGUF name -> (new name, shape, whether its rows are permuted)."""
    hidden, inner = llama.hidden, llama.intermediate
    queries, keys = llama.heads * llama.head_dim, llama.kv_heads * llama.head_dim
    layer = {
        "attn_norm": ("input_layernorm", (hidden,), False),
        "attn_q": ("self_attn.q_proj", (queries, hidden), True),
        "attn_k": ("self_attn.k_proj", (keys, hidden), True),
        "attn_v": ("self_attn.v_proj", (keys, hidden), False),
        "attn_output": ("self_attn.o_proj", (hidden, queries), False),
        "ffn_norm": ("post_attention_layernorm", (hidden,), False),
        "ffn_gate": ("mlp.gate_proj", (inner, hidden), False),
        "ffn_up": ("mlp.up_proj", (inner, hidden), False),
        "ffn_down": ("mlp.down_proj", (hidden, inner), False),
    }
    expected: dict[str, tuple[str, tuple[int, ...], bool]] = {
        "token_embd.weight": ("model.embed_tokens.weight", (llama.vocabulary, hidden), False),
        "output_norm.weight": ("model.norm.weight", (hidden,), False),
    }
    if not llama.tied:
        expected["output.weight"] = ("lm_head.weight", (llama.vocabulary, hidden), False)
    for index in range(llama.layers):
        for source, (target, shape, permuted) in layer.items():
            expected[f"blk.{index}.{source}.weight"] = (f"model.layers.{index}.{target}.weight", shape, permuted)
    return expected


def unpermute(rows: NDArray[T], heads: int) -> NDArray[T]:
    """The rows of `heads` heads in Hugging Face's order (RoPE over halves), from llama.cpp's (over neighbours).

    The inverse of `permute` in llama.cpp's `convert_hf_to_gguf.py`.
    """
    split = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)
