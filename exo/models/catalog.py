"""The models that exo knows by name, as data in `catalog.json`.

Weight bytes of the quantized cards follow from the architecture at 4.5 bits a weight (4 bits, and a 16-bit scale and
bias for each 64 weights); a downloaded model's own figures replace them.
"""

from functools import cache
from importlib import resources

from pydantic import TypeAdapter

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard

EMBEDDED = ModelId("HuggingFaceTB/SmolLM2-135M-Instruct")
"""The default: small enough for any machine, and in a package of the Python index."""


@cache
def catalog() -> tuple[ModelCard, ...]:
    """All cards, in the file's order, the embedded one first."""
    text = resources.files("exo.models").joinpath("catalog.json").read_bytes()
    return TypeAdapter(tuple[ModelCard, ...]).validate_json(text)


@cache
def embedded() -> ModelCard:
    """The model that works without any hub."""
    return next(card for card in catalog() if card.model_id == EMBEDDED)
