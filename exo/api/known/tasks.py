"""Generations by the ids that clients know them by."""

import re

from exo.domain.ids import TaskId

_ANSWER_ID = re.compile(r"[a-z]+[-_]([0-9a-f]{32})")
"""`chatcmpl-…`, `resp_…`, `msg_…`: each API has its own prefix before the id of the task."""


def task_named(name: str) -> TaskId:
    """The task of an answer's id; any other text as it is."""
    answer = _ANSWER_ID.fullmatch(name)
    return TaskId(answer[1] if answer else name)
