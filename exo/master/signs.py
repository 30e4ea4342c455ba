"""The signs of life that a master has heard: of nodes, and of API processes that read generations."""

import time
from collections.abc import Callable

from exo.domain.ids import ApiId, NodeId, TaskId
from exo.domain.limits import UNREAD
from exo.domain.messages.beat import ApiBeat
from exo.domain.node import NodeGauges
from exo.domain.state import State


class Signs:
    """When each was last heard, by a monotonic clock, seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes: dict[NodeId, float] = {}
        self._apis: dict[ApiId, tuple[float, ApiBeat]] = {}

    def of_node(self, gauges: NodeGauges) -> None:
        """A node has shown its figures."""
        self._nodes[gauges.node_id] = self._clock()

    def of_api(self, beat: ApiBeat) -> None:
        """An API process lives."""
        now = self._clock()
        self._apis[beat.api_id] = now, beat
        for api_id in [api_id for api_id, (at, _) in self._apis.items() if now - at > UNREAD]:
            del self._apis[api_id]

    def last_beats(self, state: State, began: float, now: float) -> dict[NodeId, float]:
        """When each node was last seen by the wall clock, of which it is `now`; none before `began`, by the other."""
        ahead = now - self._clock()
        return {node_id: ahead + max(began, self._nodes.get(node_id, began)) for node_id in state.nodes}

    def last_read(self, state: State, began: float, now: float) -> dict[TaskId, float]:
        """As `last_beats`, when an API process was that reads a generation, of those that need one."""
        ahead = now - self._clock()
        asked = {api_id: at for api_id, (at, _) in self._apis.items()}
        read = {task_id: at for at, beat in sorted(self._apis.values(), key=_heard_at) for task_id in beat.reading}
        return {
            task_id: ahead + max(began, asked.get(one.reply_to, began), read.get(task_id, began))
            for task_id, one in state.generations.items()
            if one.needs_reader
        }


def _heard_at(heard: tuple[float, ApiBeat]) -> float:
    return heard[0]
