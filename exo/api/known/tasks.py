"""Generations by the ids that clients know them by."""

import re

from exo.domain.ids import TaskId
from exo.domain.state import Generation, State

_ANSWER_ID = re.compile(r"[a-z]+[-_]([0-9a-f]{32})")
"""`chatcmpl-…`, `resp_…`, `msg_…`: each API has its own prefix before the id of the task."""


def task_named(name: str) -> TaskId:
    """The task of an answer's id; any other text as it is."""
    answer = _ANSWER_ID.fullmatch(name)
    return TaskId(answer[1] if answer else name)


def choice_tasks(first: TaskId, count: int) -> list[TaskId]:
    """The tasks of an answer's choices: the first one's names all of them, so that they can be found again by it."""
    return [first, *(TaskId(f"{first}-{index}") for index in range(1, count))]


def live_choices(state: State, first: TaskId) -> list[Generation]:
    """The choices of an answer that are not over."""
    found = (one for one in state.generations.values() if one.task_id == first or one.task_id.startswith(f"{first}-"))
    return sorted(found, key=lambda generation: generation.queued_position)
