"""Machines that vLLM divides a model over by its own means, beside the cluster's."""

from typing import Annotated

from pydantic import Field

from exo.domain.base import Frozen

RAY_NODES_MOST = 64


class RayCluster(Frozen):
    """A Ray cluster that its user started. Its machines are alike: they have the same GPUs, the same environment, and
    the model under the same path."""

    address: str
    """`host:port` of its head."""
    nodes: Annotated[int, Field(ge=2, le=RAY_NODES_MOST)]
    """Machines that a model is divided over, by layers; on each, over its GPUs by tensor."""
