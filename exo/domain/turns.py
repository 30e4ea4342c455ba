"""Whose turn it is: clients share the slots of a model, however many requests each has sent."""

from collections import Counter, deque
from collections.abc import Iterable

from exo.domain.ids import ModelId
from exo.domain.state import Generation, State


class Turns:
    """The queue of one model, read in the order in which it is served.

    Next is a request of the client that has fewest running; among those of the one that was served longest ago, else a
    single slot would go to whoever came first, request after request; and of this client the oldest.
    """

    def __init__(self, state: State, model_id: ModelId, waiting: Iterable[Generation]) -> None:
        """`waiting`: all queued generations of the model, oldest first."""
        self._queues: dict[str, deque[Generation]] = {}
        for generation in waiting:
            self._queues.setdefault(generation.client, deque()).append(generation)
        running = [
            one for one in state.generations.values() if one.model_id == model_id and one.instance_id is not None
        ]
        self._running = Counter(one.client for one in running)
        self._served: dict[str, float] = {}
        for one in (*state.ended, *running):
            if one.model_id == model_id and one.dispatched_at > self._served.get(one.client, 0.0):
                self._served[one.client] = one.dispatched_at

    def take(self, now: float) -> Generation | None:
        """The next one, which is dispatched at `now`; None where no more wait."""
        if not self._queues:
            return None
        client = min(self._queues, key=self._rank)
        queue = self._queues[client]
        generation = queue.popleft()
        if not queue:
            del self._queues[client]
        self._running[client] += 1
        self._served[client] = now
        return generation

    def _rank(self, client: str) -> tuple[int, float, int]:
        return self._running[client], self._served.get(client, 0.0), self._queues[client][0].queued_position
