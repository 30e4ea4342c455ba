"""A model folder in Hugging Face's layout: what it holds, and whether it is whole."""

from collections import Counter
from pathlib import Path

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard, Quantization, Source
from exo.errors import Rejected
from exo.models.config import card_of
from exo.models.json_file import Json, read_object
from exo.models.safetensors_file import Header, read_header

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILES = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"), ("tiktoken.model",))
"""Any one of these sets is a tokenizer."""

PLAIN: dict[str, Quantization] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def card_from_folder(path: Path, model_id: ModelId, sources: tuple[Source, ...] = ()) -> ModelCard:
    """The card of the model in `path`, from config.json and the headers of its weight files.

    Raises Rejected, naming the file and what to do, when a file is missing or says too little.
    """
    config, origin = read_object(path / CONFIG_FILE), str(path / CONFIG_FILE)
    headers = [read_header(file) for file in weight_files(path)]
    weight_bytes = sum(entry.bytes for header in headers for entry in header.tensors)
    return card_of(config, origin, model_id, weight_bytes, _widest_type(headers), sources)


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


def _widest_type(headers: list[Header]) -> Quantization:
    """By the bytes of each number type, the one that has most."""
    sizes: Counter[str] = Counter()
    for header in headers:
        for entry in header.tensors:
            sizes[entry.dtype] += entry.bytes
    most = sizes.most_common(1)
    return PLAIN.get(most[0][0], "none") if most else "none"
