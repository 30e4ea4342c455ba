"""Tiny random models of several families, built from a configuration alone, for tests that compare tokens.

Every family has 6 layers and sizes that divide by 2 and by 3, so that it splits over two and over three ranks. Weights
are float32 and the same each time. A layer hands on about as much as it gets (normal weights of a standard deviation of
GAIN over the root of what they sum up), so that every token depends on all before it. In 24 tokens, the least lead of
the first logit over the second is mostly 0.01 to 0.05, which is thousands of times what rounding makes.
"""

import functools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exo.domain.shard import Shard
from exo.models.families import supports_tensor
from exo.runner.engines.mlx.blas import bind_fast_blas
from exo.runner.structured.guide import Guide
from tests import builders

BLAS_CACHE = Path(__file__).parents[1] / "build" / "test-cache"
VOCABULARY = 384
LAYERS = 6
CONTEXT = 8192
WINDOW = 16
"""Of layers with a sliding window, in tokens: shorter than most prompts, so that it matters."""
GAIN = 1.5
END = "<|im_end|>"
SEED = 6

COMMON: dict[str, Any] = {
    "hidden_size": 96,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 192,
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "gpt_oss": {
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": CONTEXT // 2},
    },
    "deepseek_v3": {
        "num_key_value_heads": 12,
        "q_lora_rank": 48,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "moe_intermediate_size": 48,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    },
    "gemma3_text": {"query_pre_attn_scalar": 16, "sliding_window": WINDOW, "sliding_window_pattern": 3},
    "mamba2": {
        "num_heads": 12,
        "state_size": 16,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_limit": [0.0, 1e9],
        "time_step_rank": "auto",
    },
    "qwen3_next": {
        "linear_num_value_heads": 12,
        "linear_num_key_heads": 6,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 96,
        "mlp_only_layers": [],
        "moe_intermediate_size": 48,
        "partial_rotary_factor": 0.5,
        "norm_topk_prob": True,
        "full_attention_interval": 3,
    },
    "falcon_h1": {
        "mamba_d_ssm": 192,
        "mamba_d_head": 16,
        "mamba_n_heads": 12,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
    },
}
"""What `config.json` says of each beside COMMON. gpt_oss and gemma3_text have layers with a sliding window, mamba2 has
only state-space layers, falcon_h1 has that and attention in every layer, two of three of qwen3_next are linear."""

UNBATCHED: dict[str, dict[str, Any]] = {
    "gemma2": {
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "sliding_window": WINDOW,
    },
}
"""Families of which mlx-lm computes one sequence at a time."""

UNJOINABLE: dict[str, dict[str, Any]] = {
    "llama4": {
        "text_config": {
            **COMMON,
            "model_type": "llama4_text",
            "intermediate_size_mlp": 192,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "attention_bias": False,
            "attention_chunk_size": WINDOW,
            "rope_scaling": None,
            "use_qk_norm": False,
        },
    },
}
"""Families with states that mlx-lm has no way to join."""

ALL_FAMILIES = FAMILIES | UNBATCHED | UNJOINABLE

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CORPUS = (
    "The keeper of the lighthouse wrote down every ship that passed, the weather that it came through, and whether its "
    "lamps were lit. In winter there were days with nothing to write, and then he wrote about the birds. When the "
    "railway came, fewer ships went by; the book grew thinner each year, until a page was enough for a month."
)
"""What the tokenizer's pairs of letters are learned from."""


def build(family: str, folder: Path, **changes: Any) -> Path:
    """Writes the model into `folder`, which must not exist, and returns it. `changes` go into `config.json`."""
    config = {**COMMON, "model_type": family, **ALL_FAMILIES[family], **changes}
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _write_tokenizer(partial)
    config["eos_token_id"] = json.loads((partial / "generation_config.json").read_text())["eos_token_id"]
    (partial / "config.json").write_text(json.dumps(config, indent=1))
    _write_weights(config, partial)
    return partial.rename(folder)


def shard(family: str) -> Shard:
    """The shard that is the whole model, with a card that says what `config.json` does."""
    config = {**COMMON, **ALL_FAMILIES[family]}
    card = builders.card(
        f"tiny/{family}",
        family=family,
        layers=LAYERS,
        hidden_size=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        weight_bytes=8 << 20,
        context=CONTEXT,
        quantization="float32",
        supports_tensor=supports_tensor(family),
    )
    return builders.whole(card)


def prompt(tokens: int, seed: int = 0) -> list[int]:
    """A prompt of so many ordinary tokens; another for every seed."""
    import random

    return random.Random(f"{seed} {tokens}").choices(range(3, VOCABULARY), k=tokens)


def greedy_tokens(folder: Path, tokens: Sequence[int], max_tokens: int, guide: Guide | None = None) -> list[int]:
    """What mlx-lm's own `generate_step` gives, held to a guide if there is one, cut after the first end token.

    Without a guide it is computed once for all tests.
    """
    compute = _computed if guide else _computed_once
    return list(compute(folder, tuple(tokens), max_tokens, guide))


def _computed(folder: Path, tokens: tuple[int, ...], max_tokens: int, guide: Guide | None) -> tuple[int, ...]:
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    model, ends = _reference(folder)
    processors = [_holding(guide, len(tokens))] if guide else []
    found: list[int] = []
    for token, _ in generate_step(mx.array(tokens), model, max_tokens=max_tokens, logits_processors=processors):
        found.append(int(token))
        if found[-1] in ends:
            break
    return tuple(found)


_computed_once = functools.cache(_computed)


def _holding(guide: Guide, prompt_tokens: int) -> Callable[[Any, Any], Any]:
    """Leaves the logits of what the guide allows; mlx-lm calls it with all tokens so far."""
    import mlx.core as mx

    def held(tokens: Any, logits: Any) -> Any:
        if tokens.size > prompt_tokens:
            guide.take(int(tokens[-1]))
        allowed = guide.allowed()
        if allowed is None:
            return logits
        width = logits.shape[-1]
        return mx.where(mx.array(list(allowed[:width].ljust(width, b"\0"))) > 0, logits, -mx.inf)

    return held


def greedy_gap(folder: Path, tokens: list[int], max_tokens: int) -> float:
    """The least lead of the first logit over the second on the way of `greedy_tokens`."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    model, _ = _reference(folder)
    gaps: list[float] = []
    for _, logprobs in generate_step(mx.array(tokens), model, max_tokens=max_tokens):
        second, first = mx.topk(logprobs, 2).tolist()
        gaps.append(abs(first - second))
    return min(gaps)


@functools.cache
def _reference(folder: Path) -> tuple[Any, frozenset[int]]:
    """mlx-lm's model and the tokens that end a generation."""
    from mlx_lm.utils import load_model

    from exo.runner.tokenizer import HuggingFaceTokenizer

    return load_model(folder)[0], HuggingFaceTokenizer(folder).end_tokens


def _write_tokenizer(folder: Path) -> None:
    """Byte-level BPE with exactly VOCABULARY tokens; the first three are special."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS], trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.token_to_id(END)}))


def _write_weights(config: dict[str, Any], folder: Path) -> None:
    bind_fast_blas(BLAS_CACHE)
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    mx.random.seed(SEED)  # for the biases, which keep what they begin with
    model_class, arguments = _get_classes(config)
    model = model_class(arguments.from_dict(config))
    keys = iter(mx.random.split(mx.random.key(SEED), 1000))
    weights = {name: _random(mx, name, array, next(keys)) for name, array in tree_flatten(model.parameters())}
    head = next(name for end in ("lm_head.weight", "embed_tokens.weight") for name in weights if name.endswith(end))
    weights[head][config["eos_token_id"]] = 0  # its logit of 0 is never the largest: none ends early
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def _random(mx: Any, name: str, array: Any, key: Any) -> Any:
    """Random weights of the shape of `array`; norms, biases and the like stay close to what the family starts with."""
    noise = mx.random.normal(array.shape, key=key)
    if name.endswith("dt_bias"):
        return noise - 4  # small time steps: a state that lasts for hundreds of tokens
    if array.ndim == 1:
        return array.astype(mx.float32) + 0.1 * noise
    if "embed" in name:
        return noise
    fan_in = array.shape[-2] if "conv1d" in name else array.shape[-1]
    return noise * GAIN * fan_in**-0.5
