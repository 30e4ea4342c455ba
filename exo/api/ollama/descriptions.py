"""Models as Ollama describes them, by their cards."""

import hashlib
from collections.abc import Mapping
from typing import Literal

from typing_extensions import TypedDict

from exo.api.ollama.answers import timestamp
from exo.domain.ids import ModelId
from exo.domain.model_card import Ability, ModelCard, Quantization

BITS: Mapping[Quantization, float] = {
    "none": 16,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "8bit": 8.5,
    "6bit": 6.5,
    "5bit": 5.5,
    "4bit": 4.5,
    "3bit": 3.5,
    "2bit": 2.5,
    "mxfp4": 4.25,
}
"""Of a weight. MLX adds a scale and a bias of 16 bits to each 64 weights, MXFP4 a scale of 8 bits to each 32."""
Capability = Ability | Literal["completion"]
"""In Ollama's words."""
LONG_AGO = timestamp(0)
"""Stands where Ollama says when a model came onto the disk, which the cluster does not know."""


class Details(TypedDict):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


def details_of(card: ModelCard) -> Details:
    """The parameters are counted by the size of the weights."""
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": card.family,
        "families": [card.family],
        "parameter_size": shortened(parameters_of(card)),
        "quantization_level": card.quantization,
    }


def capabilities_of(card: ModelCard) -> list[Capability]:
    """What the model can do. One that was trained to make vectors is for nothing else: by that word clients leave it
    out where a model is to answer."""
    return ["embedding"] if "embedding" in card.abilities else ["completion", *card.abilities]


def parameters_of(card: ModelCard) -> int:
    """About how many the model has."""
    return round(card.weight_bytes * 8 / BITS[card.quantization])


def digest_of(model_id: ModelId) -> str:
    """Names a model: SHA-256 of its id, hexadecimal. Ollama has that of a manifest.

    A model has one id wherever it lies. The figures of its card are others once it is on a disk.
    """
    return hashlib.sha256(model_id.encode()).hexdigest()


def facts_of(card: ModelCard) -> dict[str, str | int]:
    """`model_info`: what is known of the architecture, by the names that GGUF files have."""
    family = card.family
    return {
        "general.architecture": family,
        "general.basename": card.short_name,
        "general.parameter_count": parameters_of(card),
        f"{family}.context_length": card.context,
        f"{family}.embedding_length": card.hidden_size,
        f"{family}.block_count": card.layers,
        f"{family}.attention.head_count": card.heads,
        f"{family}.attention.head_count_kv": card.kv_heads,
        f"{family}.attention.key_length": card.head_dim,
    }


def shortened(number: int) -> str:
    """`134.52M`, `7.6B`."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.{2 if unit == 'M' else 1}f}{unit}"
    return str(number)
