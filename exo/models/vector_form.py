"""What a model folder says of the vectors that it was trained to make of texts.

Two conventions are read: the files of sentence-transformers (`modules.json`, `1_Pooling/config.json`), and the entries
`is_matryoshka` and `matryoshka_dimensions` of `config.json`, which vLLM reads too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from exo.domain.embedding import EmbeddingParams, Pooling
from exo.errors import Rejected
from exo.models.folder import CONFIG_FILE
from exo.models.json_file import JsonObject, read_object

MODULES_FILE = "modules.json"
POOLING_FILE = "1_Pooling/config.json"
"""Where sentence-transformers writes it."""
DEFAULT_POOLING: Pooling = "mean"
"""Of models that say nothing: those that were trained to write, of whose tokens the last one tells least of a text."""
COMPUTED = frozenset({"Transformer", "Pooling", "Normalize"})
"""Modules of sentence-transformers that are what is done here anyway."""
MODES: Mapping[str, Pooling] = {"mean": "mean", "mean_tokens": "mean", "lasttoken": "last"}
"""Names of sentence-transformers, with and without what its older files put before them."""
_MODE = "pooling_mode"


@dataclass(frozen=True, slots=True)
class VectorForm:
    """How a model's vectors are made."""

    pooling: Pooling | None = DEFAULT_POOLING
    """None: in a way that is not computed here."""
    pooling_name: str = DEFAULT_POOLING
    """As the model's files have it."""
    shorter: bool | frozenset[int] = False
    """Whether a vector's beginning is a vector too, and of which lengths."""
    refusal: str = ""
    """Why this model makes none here."""
    is_trained: bool = False
    """Whether the model was trained to make them: its files name a pooling."""

    def chosen(self, params: EmbeddingParams, width: int) -> tuple[Pooling, int]:
        """The pooling for a request, and how many of a vector's `width` numbers it wants.

        Raises Rejected where the model does not do that.
        """
        if self.refusal:
            raise Rejected(self.refusal, code="embeddings_not_supported", param="model")
        pooling = params.pooling or self.pooling
        if pooling is None:
            reason = f"this model's own pooling, '{self.pooling_name}', is not computed here: say 'mean' or 'last'"
            raise Rejected(reason, code="unsupported_parameter", param="pooling")
        return pooling, self._dimensions(params.dimensions, width)

    def _dimensions(self, asked: int | None, width: int) -> int:
        if asked is None or asked == width:
            return width
        if asked < width and (self.shorter is True or (self.shorter and asked in self.shorter)):
            return asked
        reason = f"dimensions: this model's vectors may have {self._lengths(width)} of them, and {asked} were asked for"
        raise Rejected(reason, code="unsupported_parameter", param="dimensions")

    def _lengths(self, width: int) -> str:
        if self.shorter is True:
            return f"1 to {width}"
        return ", ".join(map(str, sorted({width, *(self.shorter or ())})))


def read_vector_form(folder: Path) -> VectorForm:
    """What the files say. One that cannot be read is a refusal: the model may write all the same."""
    try:
        config = read_object(folder / CONFIG_FILE)
        modules = _modules(folder)
        refusal = _other_attention(config) or _other_modules(modules)
        is_trained = "Pooling" in modules or (folder / POOLING_FILE).is_file()
        mode = _pooling_mode(folder / POOLING_FILE, is_declared="Pooling" in modules)
    except Rejected as unreadable:
        return VectorForm(refusal=unreadable.reason)
    return VectorForm(MODES.get(mode), mode, _shorter(config), refusal, is_trained)


def _other_attention(config: JsonObject) -> str:
    text = config.get("text_config")
    for entries in (config, text if isinstance(text, Mapping) else {}):
        if entries.get("use_bidirectional_attention") or entries.get("is_causal") is False:
            return "this model's tokens look at those after them, which is not computed here"
    return ""


def _other_modules(modules: Sequence[str]) -> str:
    """Such as a layer after the pooling."""
    others = [module for module in modules if module not in COMPUTED]
    return f"this model's vectors need a module that is not computed here: {', '.join(others)}" if others else ""


def _modules(folder: Path) -> Sequence[str]:
    """What a text goes through, by the classes of sentence-transformers; none for a model of no such kind."""
    file = folder / MODULES_FILE
    if not file.is_file():
        return ()
    try:
        listed = cast(object, json.loads(file.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise Rejected(f"{file} is not valid JSON ({error}): fetch it again") from error
    modules = cast("list[object]", listed) if isinstance(listed, list) else [listed]
    return [_kind(module) for module in modules]


def _kind(module: object) -> str:
    """The class of a module, without where it is imported from."""
    return str(cast("JsonObject", module).get("type")).rsplit(".", 1)[-1] if isinstance(module, dict) else "unknown"


def _pooling_mode(file: Path, *, is_declared: bool) -> str:
    if not file.is_file() and not is_declared:
        return DEFAULT_POOLING
    config = read_object(file)
    if isinstance(mode := config.get(_MODE), str):
        return mode
    modes = [name.removeprefix(f"{_MODE}_") for name, value in config.items() if name.startswith(_MODE) and value]
    return " and ".join(modes) or DEFAULT_POOLING


def _shorter(config: JsonObject) -> bool | frozenset[int]:
    listed = config.get("matryoshka_dimensions")
    if isinstance(listed, list):
        return frozenset(one for one in listed if isinstance(one, int))
    return bool(config.get("is_matryoshka"))
