"""A GGUF file of the llama family, turned into a folder that mlx-lm, transformers and vLLM load."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard
from exo.errors import Rejected
from exo.models.disk import FreeBytes, free_bytes, require_space
from exo.models.families import supports_tensor
from exo.models.gguf.file import GgufFile, open_gguf
from exo.models.gguf.llama import Llama, Move, llama_of, moves, unpermute
from exo.models.gguf.tokenizer import ImportedTokenizer, tokenizer_of
from exo.models.json_file import write_object
from exo.models.names import checked_id
from exo.models.progress import IsCancelled, OnProgress, Progress, ignore_progress, never, stop_if
from exo.models.safetensors_file import TensorEntry, write_tensors

Dtype = Literal["float32", "float16", "bfloat16"]
SAFETENSORS_DTYPE: dict[Dtype, str] = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
ITEM_BYTES: dict[Dtype, int] = {"float32": 4, "float16": 2, "bfloat16": 2}

CHUNK_ELEMENTS = 4 << 20
"""Numbers that are turned at a time: 16 MB as float32."""
TOKENIZER_BYTES = 64 << 20
"""Room for the tokenizer and the small files; the largest are about 35 MB."""
PARTIAL = ".partial"
"""Suffix of a folder that is being written, and of one that a killed process left."""
CARD_FILE = "exo.json"


def import_gguf(
    file: Path,
    destination: Path,
    dtype: Dtype = "float32",
    on_progress: OnProgress = ignore_progress,
    *,
    model_id: ModelId | None = None,
    license_name: str = "",
    cancelled: IsCancelled = never,
    free: FreeBytes = free_bytes,
) -> ModelCard:
    """Writes the model in `file` to the new folder `destination`; returns its card, which is in `exo.json` there too.

    The folder holds config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
    chat_template.jinja. It appears whole or not at all, whatever ends this call. `model_id` is the folder's name unless
    given. Memory: about six times 16 MB whatever the model's size, besides the vocabulary and the mapped file. Raises
    Rejected (a file that is not supported or broken, too little disk, a destination that exists) and Cancelled.
    """
    if destination.exists():
        raise Rejected(f"{destination} exists already: delete that model first, or import under another name")
    source = open_gguf(file)
    llama = llama_of(source)
    plan = moves(source, llama)
    tokenizer = tokenizer_of(source.metadata, llama.context)
    entries = [_entry(move, dtype) for move in plan]
    total = sum(entry.bytes for entry in entries)
    require_space(destination.parent, total + TOKENIZER_BYTES, f"{destination.name} as {dtype}", free)
    license_text = license_name or source.metadata.text("general.license", "")
    card = _card(llama, dtype, total, checked_id(model_id or destination.name), license_text)
    destination.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{destination.name}.", suffix=PARTIAL, dir=destination.parent))
    try:
        by_name = {move.name: move for move in plan}
        conversion = _Conversion(source, llama.head_dim, by_name, dtype, total, on_progress, cancelled)
        write_tensors(folder / "model.safetensors", entries, conversion.chunks)
        _write_small_files(folder, llama, dtype, tokenizer)
        (folder / CARD_FILE).write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
        folder.chmod(0o755)
        folder.rename(destination)
    except OSError as error:
        raise Rejected(f"{destination} cannot be written: {error}", code="insufficient_storage") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return card


@dataclass(slots=True)
class _Conversion:
    """Turns the tensors into `dtype`, a slice of rows at a time."""

    source: GgufFile
    head_dim: int
    plan: dict[str, Move]
    dtype: Dtype
    total: int
    on_progress: OnProgress
    cancelled: IsCancelled
    done: int = 0

    def chunks(self, entry: TensorEntry) -> Iterator[NDArray[np.generic]]:
        """The tensor's numbers, in order. Slices of permuted tensors are of whole heads."""
        move = self.plan[entry.name]
        rows = self.source.rows(move.source)
        unit = self.head_dim if move.permuted else 1
        step = max(1, CHUNK_ELEMENTS // (unit * move.source.shape[-1])) * unit
        for start in range(0, len(rows), step):
            stop_if(self.cancelled)
            piece = rows[start : start + step]
            numbers = np.asarray(dequantize(piece, move.source.type), np.float32)
            if move.permuted:
                numbers = unpermute(numbers, len(piece) // self.head_dim)
            result = _as_dtype(numbers, self.dtype)
            yield result
            self.done += result.nbytes
            self.on_progress(Progress("converting", self.done, self.total))


def _as_dtype(numbers: NDArray[np.float32], dtype: Dtype) -> NDArray[np.generic]:
    """`numbers` in `dtype`; bfloat16 as its bytes, since numpy has no such type."""
    if dtype == "float32":
        return np.ascontiguousarray(numbers)
    if dtype == "float16":
        return np.ascontiguousarray(numbers.astype(np.float16))
    return np.ascontiguousarray(quantize(numbers, GGMLQuantizationType.BF16))


def _entry(move: Move, dtype: Dtype) -> TensorEntry:
    count = int(np.prod(move.source.shape, dtype=np.int64))
    return TensorEntry(move.name, SAFETENSORS_DTYPE[dtype], move.source.shape, count * ITEM_BYTES[dtype])


def _card(llama: Llama, dtype: Dtype, weight_bytes: int, model_id: ModelId, license_name: str) -> ModelCard:
    return ModelCard(
        model_id=model_id,
        family="llama",
        layers=llama.layers,
        hidden_size=llama.hidden,
        heads=llama.heads,
        kv_heads=llama.kv_heads,
        head_dim=llama.head_dim,
        weight_bytes=weight_bytes,
        context=llama.context,
        quantization=dtype,
        supports_tensor=supports_tensor("llama"),
        license=license_name,
    )


def _write_small_files(folder: Path, llama: Llama, dtype: Dtype, tokenizer: ImportedTokenizer) -> None:
    ends = list(tokenizer.ends)
    write_object(
        folder / "config.json", {**llama.config(dtype), "bos_token_id": tokenizer.bos, "eos_token_id": ends[0]}
    )
    write_object(folder / "generation_config.json", {"bos_token_id": tokenizer.bos, "eos_token_id": ends})
    write_object(folder / "tokenizer_config.json", tokenizer.config)
    tokenizer.tokenizer.save(str(folder / "tokenizer.json"))
    if tokenizer.chat_template is not None:
        (folder / "chat_template.jinja").write_text(tokenizer.chat_template, encoding="utf-8")
