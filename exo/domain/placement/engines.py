"""Which engine a model can run on."""

from exo.domain.model_card import ModelCard
from exo.domain.placement.request import PlacementRequest
from exo.domain.shard import EngineName
from exo.domain.state import State

MLX_COMMUNITY = "mlx-community/"
"""Whose conversions are in MLX's own format."""
UNQUANTIZED = frozenset({"none", "float32", "float16", "bfloat16"})


def engines_for(state: State, request: PlacementRequest) -> list[EngineName]:
    """Those to try, the best one first: the one asked for, else what nodes have, as they prefer it."""
    if request.engine is not None or request.card.family == "scripted":
        return [request.runs_in]
    places: dict[EngineName, int] = {}
    for node in state.nodes.values():
        for place, name in enumerate(node.facts.engines):
            if name != "scripted":
                places[name] = min(place, places.get(name, place))
    return sorted(places, key=lambda name: (places[name], name)) or [request.runs_in]


def is_mlx_format(card: ModelCard) -> bool:
    """Whether its weights are quantized in MLX's own way."""
    return card.model_id.startswith(MLX_COMMUNITY) and card.quantization not in UNQUANTIZED


def why_not(card: ModelCard, engine: EngineName) -> str:
    """Why an engine does not read a model's weights; empty where it does."""
    if engine == "vllm" and is_mlx_format(card):
        return f"vLLM does not read MLX's {card.quantization} weights: choose an unquantized conversion"
    return ""
