"""A model folder in Hugging Face's layout: what it holds, and whether it is whole."""

from collections import Counter
from pathlib import Path

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard, Quantization, Source
from exo.errors import Rejected
from exo.models.families import supports_tensor
from exo.models.json_file import Json, JsonObject, read_object
from exo.models.safetensors_file import Header, read_header

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILES = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"), ("tiktoken.model",))
"""Any one of these sets is a tokenizer."""

PLAIN: dict[str, Quantization] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
BITS: dict[int, Quantization] = {2: "2bit", 3: "3bit", 4: "4bit", 5: "5bit", 6: "6bit", 8: "8bit"}

STATE_SPACE_CONTEXT = 256 * 1024
"""Tokens: there are no positions that could run out; as far as Mistral tested its Codestral Mamba
(https://mistral.ai/news/codestral-mamba)."""

CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")


def card_from_folder(path: Path, model_id: ModelId, sources: tuple[Source, ...] = ()) -> ModelCard:
    """The card of the model in `path`, from config.json and the headers of its weight files.

    Raises Rejected, naming the file and what to do, when a file is missing or says too little.
    """
    whole = read_object(path / CONFIG_FILE)
    config = _flat(whole)
    origin = path / CONFIG_FILE
    heads = _whole(origin, config, "num_attention_heads", "n_head")
    hidden = _whole(origin, config, "hidden_size", "n_embd", "d_model")
    headers = [read_header(file) for file in weight_files(path)]
    family = whole.get("model_type")
    if not isinstance(family, str):
        raise Rejected(f"{origin} has no `model_type`: fetch the model again")
    return ModelCard(
        model_id=model_id,
        family=family,
        layers=_whole(origin, config, "num_hidden_layers", "n_layer", "num_layers"),
        hidden_size=hidden,
        heads=heads,
        kv_heads=_whole(
            origin, {"num_key_value_heads": heads, **_named(config, "num_key_value_heads")}, "num_key_value_heads"
        ),
        head_dim=_whole(origin, {"head_dim": hidden // heads, **_named(config, "head_dim")}, "head_dim"),
        weight_bytes=sum(entry.bytes for header in headers for entry in header.tensors),
        context=_whole(origin, config, *CONTEXT_KEYS),
        quantization=_quantization(origin, config, headers),
        supports_tensor=supports_tensor(family),
        sources=sources,
    )


def is_complete(path: Path) -> bool:
    """Whether configuration, tokenizer and every weight file are there, each as long as its header says."""
    return what_is_missing(path) is None


def what_is_missing(path: Path) -> str | None:
    """The first reason why the folder is no complete model, naming the file and what to do; None for a complete one."""
    if not (path / CONFIG_FILE).is_file():
        return f"{path / CONFIG_FILE} is missing: fetch the model again"
    if not any(all((path / name).is_file() for name in names) for names in TOKENIZER_FILES):
        return f"{path} has no tokenizer (tokenizer.json or tokenizer.model): fetch the model again"
    try:
        read_object(path / CONFIG_FILE)
        for file in weight_files(path):
            expected, found = read_header(file).file_bytes, file.stat().st_size
            if found != expected:
                return f"{file} has {found:,} bytes of {expected:,}: fetch the model again"
    except Rejected as error:
        return error.reason
    return None


def weight_files(path: Path) -> list[Path]:
    """The weight files: those that the index names, else every `model*.safetensors`, else every `*.safetensors`.

    Raises Rejected when one is missing, or none is there.
    """
    if (path / INDEX_FILE).is_file():
        return [_checked(path, name) for name in sorted(indexed_files(path / INDEX_FILE))]
    found = sorted(path.glob("model*.safetensors")) or sorted(path.glob("*.safetensors"))
    if not found:
        raise Rejected(f"{path} has no safetensors file: fetch the model again, or convert its weights to safetensors")
    return found


def indexed_files(index: Path) -> set[str]:
    """The file names in a safetensors index. Raises Rejected for a malformed one, and for names outside its folder."""
    weight_map = read_object(index).get("weight_map")
    names = set(weight_map.values()) if isinstance(weight_map, dict) else set[Json]()
    texts = {name for name in names if isinstance(name, str) and name == Path(name).name and name not in ("", "..")}
    if not names or texts != names:
        raise Rejected(f"{index} has no usable `weight_map`: fetch it again")
    return texts


def _checked(path: Path, name: str) -> Path:
    file = path / name
    if not file.is_file():
        raise Rejected(f"{file} is missing, and {INDEX_FILE} names it: fetch the model again")
    return file


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


def _whole(origin: Path, config: JsonObject, *keys: str) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise Rejected(f"{origin} says no `{keys[0]}` above zero: add it, or fetch the model again")


def _quantization(origin: Path, config: JsonObject, headers: list[Header]) -> Quantization:
    settings = config.get("quantization") or config.get("quantization_config")
    if not isinstance(settings, dict):
        return _widest_type(headers)
    mode = settings.get("mode") or settings.get("quant_method") or "affine"
    if mode == "mxfp4":
        return "mxfp4"
    bits = settings.get("bits")
    if isinstance(bits, int) and bits in BITS:
        return BITS[bits]
    raise Rejected(
        f"{origin}: weights quantized by {mode!r} at {bits} bits are not known: fetch an MLX conversion of it"
    )


def _widest_type(headers: list[Header]) -> Quantization:
    """By the bytes of each number type, the one that has most."""
    sizes: Counter[str] = Counter()
    for header in headers:
        for entry in header.tensors:
            sizes[entry.dtype] += entry.bytes
    most = sizes.most_common(1)
    return PLAIN.get(most[0][0], "none") if most else "none"
