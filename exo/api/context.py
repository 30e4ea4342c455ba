"""What the endpoints work with: one object, made at the process' start."""

import time
from dataclasses import dataclass, field

from exo.api.generations import Generations
from exo.api.readers import Readers
from exo.bus.client import Bus
from exo.bus.replica import Replica
from exo.config import Settings
from exo.domain.ids import ApiId, NodeId
from exo.domain.node import NodeGauges
from exo.domain.state import State
from exo.errors import Retryable


@dataclass(slots=True)
class Api:
    """One API process, connected."""

    settings: Settings
    bus: Bus
    api_id: ApiId
    replica: Replica
    generations: Generations
    readers: Readers = field(default_factory=Readers)
    """Open streams that are no generations."""
    gauges: dict[NodeId, tuple[float, NodeGauges]] = field(default_factory=dict[NodeId, tuple[float, NodeGauges]])
    """Each node's last figures, and when they came by the monotonic clock."""

    @property
    def state(self) -> State:
        """State as this process knows it. Raises Retryable while no master has answered."""
        if not self.replica.is_live:
            raise Retryable("no master has answered yet: start `exo master`, or ask again in a moment")
        return self.replica.state

    def take_gauges(self, gauges: NodeGauges) -> None:
        """Keep a node's figures."""
        self.gauges[gauges.node_id] = (time.monotonic(), gauges)
