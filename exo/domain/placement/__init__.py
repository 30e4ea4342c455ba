"""Where a model goes, and why there. Pure: State and a request give a placement, or why there is none."""

from exo.domain.placement.choice import place
from exo.domain.placement.memory import needed_bytes
from exo.domain.placement.request import Placement, PlacementRequest, Refused, RefusedCode, Share
from exo.domain.placement.shards import instance_from

__all__ = [
    "Placement",
    "PlacementRequest",
    "Refused",
    "RefusedCode",
    "Share",
    "instance_from",
    "needed_bytes",
    "place",
]
