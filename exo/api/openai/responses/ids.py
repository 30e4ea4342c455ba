"""The ids of responses and of the items in them, all made of the generation's task."""

import re

from exo.domain.ids import TaskId
from exo.errors import Rejected

RESPONSE_PREFIX = "resp_"
_RESPONSE_ID = re.compile(r"resp_[0-9a-f]{32}")


def response_id(task_id: TaskId) -> str:
    """Of the response that a generation gives."""
    return f"{RESPONSE_PREFIX}{task_id}"


def task_of(identifier: str) -> TaskId:
    """The generation behind a response. Raises Rejected where that is no response's id."""
    if not _RESPONSE_ID.fullmatch(identifier):
        raise not_found(identifier)
    return TaskId(identifier.removeprefix(RESPONSE_PREFIX))


def not_found(identifier: str) -> Rejected:
    """The refusal for a response that is not there."""
    reason = f"there is no response '{identifier[:100]}': one is kept for an hour, unless its 'store' was false"
    return Rejected(reason, code="response_not_found")
