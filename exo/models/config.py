"""A model's `config.json`, read into the figures of its card."""

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard, Quantization, Source
from exo.errors import Rejected
from exo.models.families import supports_tensor
from exo.models.json_file import JsonObject

BITS: dict[int, Quantization] = {2: "2bit", 3: "3bit", 4: "4bit", 5: "5bit", 6: "6bit", 8: "8bit"}
PLAIN: dict[str, Quantization] = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}

STATE_SPACE_CONTEXT = 256 * 1024
"""Tokens: there are no positions that could run out; as far as Mistral tested its Codestral Mamba
(https://mistral.ai/news/codestral-mamba)."""

CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")


def card_of(
    config: JsonObject,
    origin: str,
    model_id: ModelId,
    weight_bytes: int,
    plain: Quantization | None = None,
    sources: tuple[Source, ...] = (),
) -> ModelCard:
    """The card that a configuration gives, and what is known of the weights.

    `plain`: the number type of weights that are not quantized; None: the one that the configuration names. Raises
    Rejected, naming `origin` and what to do, when it says too little.
    """
    flat = _flat(config)
    heads = _whole(origin, flat, "num_attention_heads", "n_head")
    hidden = _whole(origin, flat, "hidden_size", "n_embd", "d_model")
    family = config.get("model_type")
    if not isinstance(family, str):
        raise Rejected(f"{origin} has no `model_type`: fetch the model again")
    return ModelCard(
        model_id=model_id,
        family=family,
        layers=_whole(origin, flat, "num_hidden_layers", "n_layer", "num_layers"),
        hidden_size=hidden,
        heads=heads,
        kv_heads=_whole(
            origin, {"num_key_value_heads": heads, **_named(flat, "num_key_value_heads")}, "num_key_value_heads"
        ),
        head_dim=_whole(origin, {"head_dim": hidden // heads, **_named(flat, "head_dim")}, "head_dim"),
        weight_bytes=weight_bytes,
        context=_whole(origin, flat, *CONTEXT_KEYS),
        quantization=_quantization(origin, flat) or plain or _plain(flat),
        quantized_by=_quantized_by(flat),
        supports_tensor=supports_tensor(family),
        sources=sources,
    )


def _flat(config: JsonObject) -> JsonObject:
    """A multimodal model keeps its language model's figures in `text_config`; those win."""
    text = config.get("text_config")
    flat = {**config, **text} if isinstance(text, dict) else config
    return {**_as_attention(flat), **flat}


def _as_attention(config: JsonObject) -> JsonObject:
    """What a state-space model without attention has in place of an attention model's figures.

    Its groups stand for KV heads: the heads of one share B and C, the counterparts of keys and queries
    (https://arxiv.org/abs/2405.21060). Its state does not grow with the tokens, and what is reserved for those is more.
    """
    if "state_size" not in config or "num_heads" not in config:
        return {}
    return {
        "num_attention_heads": config["num_heads"],
        "num_key_value_heads": config.get("n_groups"),
        CONTEXT_KEYS[-1]: STATE_SPACE_CONTEXT,
    }


def _named(config: JsonObject, key: str) -> JsonObject:
    return {key: config[key]} if config.get(key) is not None else {}


def _whole(origin: str, config: JsonObject, *keys: str) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise Rejected(f"{origin} says no `{keys[0]}` above zero: add it, or fetch the model again")


def _quantization(origin: str, config: JsonObject) -> Quantization | None:
    """None: the weights are not quantized."""
    settings = config.get("quantization") or config.get("quantization_config")
    if not isinstance(settings, dict):
        return None
    mode = settings.get("mode") or settings.get("quant_method") or "affine"
    if mode == "mxfp4":
        return "mxfp4"
    if mode == "fp8":
        return "8bit"
    bits = settings.get("bits")
    if isinstance(bits, int) and bits in BITS:
        return BITS[bits]
    raise Rejected(
        f"{origin}: weights quantized by {mode!r} at {bits} bits are not known: fetch an MLX conversion of it"
    )


def _quantized_by(config: JsonObject) -> str:
    """MLX alone writes `quantization`; it writes the other, which all write, besides."""
    if isinstance(config.get("quantization"), dict):
        return "mlx"
    settings = config.get("quantization_config")
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    return method if isinstance(method, str) else ""


def _plain(config: JsonObject) -> Quantization:
    """What transformers writes: `dtype`, formerly `torch_dtype`."""
    named = config.get("dtype") or config.get("torch_dtype")
    return PLAIN.get(named, "none") if isinstance(named, str) else "none"
