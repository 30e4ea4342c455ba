"""Which engine a model can run on."""

from exo.domain.model_card import ModelCard
from exo.domain.placement.request import PlacementRequest
from exo.domain.shard import EngineName
from exo.domain.state import Node, State

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
    is_mlx = card.quantized_by == "mlx" or card.model_id.startswith(MLX_COMMUNITY)
    return is_mlx and card.quantization not in UNQUANTIZED


def why_not(card: ModelCard, engine: EngineName) -> str:
    """Why an engine does not read a model's weights; empty where it does."""
    if engine == "vllm" and is_mlx_format(card):
        return f"vLLM does not read MLX's {card.quantization} weights: choose an unquantized conversion"
    if engine == "mlx" and card.quantized_by == "fp8":
        return "MLX does not read fp8 weights: place it on vLLM, or choose an MLX conversion"
    return ""


def why_not_on(node: Node, card: ModelCard, engine: EngineName) -> str:
    """Why a node cannot run a model on an engine, as what follows on its name; empty where it can."""
    if card.model_id not in node.holdings:
        return f"cannot get {card.model_id}"
    if engine not in node.facts.engines:
        facts = node.facts.facts_of(engine)
        return f"has no {engine}" if facts is None or not facts.problem else f"has no {engine}: {facts.problem}"
    if engine == "mlx" and is_mlx_format(card) and _computes_on_cuda(node):
        return (
            f"has MLX on a CUDA GPU, for which it has no matrix product of {card.quantization} weights: choose an "
            "unquantized conversion, which vLLM reads"
        )
    return ""


def _computes_on_cuda(node: Node) -> bool:
    """MLX on a node with such a GPU; one of before its engines said what they compute on is taken to use it."""
    mlx = node.facts.facts_of("mlx")
    has_cuda = node.facts.system != "darwin" and bool(node.facts.gpus)
    return has_cuda and (mlx is None or mlx.device == "gpu")
