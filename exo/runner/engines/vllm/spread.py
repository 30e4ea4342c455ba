"""Over what a model is divided: by tensor over the GPUs of this machine, and by layers over those of a Ray cluster."""

from dataclasses import dataclass
from typing import Literal

import torch

from exo.domain.model_card import ModelCard
from exo.domain.placement.sharding import slices_most
from exo.domain.ray import RayCluster


@dataclass(frozen=True, slots=True)
class Spread:
    """How many ranks there are, and what starts those of other machines."""

    gpus: int
    """Of each machine; 1 on a CPU."""
    machines: int
    executor: Literal["ray"] | None
    """None: vLLM's own choice for one machine."""

    @property
    def ranks(self) -> int:
        """On all machines together."""
        return self.gpus * self.machines

    def part(self, card: ModelCard, whole: int) -> int:
        """Of bytes that lie evenly in all layers, those of the rank with most of them."""
        layers = -(-card.layers // self.machines)
        return whole * layers // card.layers // self.gpus


def spread_of(card: ModelCard, ray: RayCluster | None) -> Spread:
    """As many GPUs as there are and can share the model's heads, on each of the machines."""
    gpus = slices_most(card, torch.cuda.device_count())
    return Spread(gpus, 1, None) if ray is None else Spread(gpus, ray.nodes, "ray")
