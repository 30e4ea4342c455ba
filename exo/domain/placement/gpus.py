"""Memory of GPUs that have some of their own: all that counts for an engine that computes on them."""

from exo.domain.model_card import ModelCard
from exo.domain.placement.sharding import slices_most
from exo.domain.shard import EngineName
from exo.domain.state import Node


def gpu_bytes(node: Node, engine: EngineName, card: ModelCard) -> int | None:
    """Bytes of the GPUs over which vLLM would divide a model, by tensor and so evenly; None where the engine works in
    the machine's own memory."""
    facts = node.facts.facts_of(engine)
    own = [gpu.total_bytes for gpu in node.facts.gpus if gpu.total_bytes and not gpu.unified]
    if engine != "vllm" or facts is None or facts.device != "gpu" or not own:
        return None
    return slices_most(card, len(own)) * min(own)


def machines_of(node: Node, engine: EngineName) -> int:
    """Over how many machines the engine would divide a model by its own means; they are taken to be like the node."""
    facts = node.facts.facts_of(engine)
    return 1 if facts is None else facts.machines
