"""The ends of the generations that this process asked for, by the log: also of those that nobody reads any more."""

from exo.api.metrics.meters import Meters
from exo.domain.ids import ApiId, TaskId
from exo.domain.messages.events import GenerationFinished, GenerationQueued, Recorded
from exo.domain.state import State


class Ends:
    """A listener of the replica."""

    def __init__(self, api_id: ApiId, meters: Meters) -> None:
        self._api_id = api_id
        self._meters = meters
        self._open: set[TaskId] = set()

    def listen(self, state: State, recorded: Recorded | None) -> None:
        """Count what ended with an event, or with those that were missed."""
        match recorded.entry.event if recorded else None:
            case None:
                self._count({one for one in self._open if one not in state.generations}, state)
                self._open |= {one.task_id for one in state.generations.values() if one.reply_to == self._api_id}
            case GenerationQueued() as event if event.reply_to == self._api_id:
                self._open.add(event.task_id)
            case GenerationFinished() as event if event.task_id in self._open:
                self._count({event.task_id}, state)
            case _:
                pass

    def _count(self, over: set[TaskId], state: State) -> None:
        for generation in reversed(state.ended) if over else ():
            if generation.task_id in over:
                self._meters.ended(generation)
        self._open -= over
