"""Which events can never matter again. Pure: a walk over the events from the first one on."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from exo.domain.ids import TaskId
from exo.domain.messages.events import (
    CancellationRequested,
    CommandRejected,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    Recorded,
)
from exo.domain.state import ENDED_KEPT


class Content(NamedTuple):
    """What one event takes up."""

    position: int
    size: int
    """Bytes of the columns that are dropped."""


@dataclass(slots=True)
class Found:
    """Events that are dropped together or not at all."""

    contents: list[Content]
    generation: bool
    """Whether they are a generation's, from its queueing to its end; else it is a refused command."""


@dataclass(slots=True)
class Walk:
    """How far the search has come. It holds the generations that live, and the last ENDED_KEPT that ended.

    The fold takes a generation into State when it is queued and moves it to `State.ended` when it finishes, from where
    it is pushed out by the ENDED_KEPT that finish after it. Nothing else in State depends on these events, so once it
    is pushed out, a history without them leads to the same State, byte for byte. A refused command changes none.
    """

    _live: dict[TaskId, list[Content]] = field(default_factory=dict[TaskId, list[Content]])
    _ended: deque[list[Content]] = field(default_factory=deque[list[Content]])

    def add(self, recorded: Recorded, size: int) -> Found | None:
        """The next event, whose content takes `size` bytes. What can be dropped now that it could not before."""
        content = Content(recorded.position, size)
        match recorded.entry.event:
            case GenerationQueued() as event:
                self._live.setdefault(event.task_id, []).append(content)
            case GenerationDispatched() | CancellationRequested() as event:
                if event.task_id in self._live:
                    self._live[event.task_id].append(content)
            case GenerationFinished() as event:
                if event.task_id in self._live:
                    self._ended.append([*self._live.pop(event.task_id), content])
            case CommandRejected():
                return Found([content], generation=False)
            case _:
                pass
        if len(self._ended) > ENDED_KEPT:
            return Found(self._ended.popleft(), generation=True)
        return None
