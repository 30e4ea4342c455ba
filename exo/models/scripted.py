"""The model that is none: for tests, with the scripted engine."""

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard

SCRIPTED_CARD = ModelCard(
    model_id=ModelId("exo/scripted"),
    family="scripted",
    layers=4,
    hidden_size=64,
    heads=4,
    kv_heads=4,
    head_dim=16,
    weight_bytes=1_000_000,
    context=8192,
    abilities=("tools", "thinking"),
)
