"""Tasks: what the runners of one instance are told, in one order for all ranks."""

from typing import Annotated, Literal

from pydantic import Field

from exo.domain.base import Frozen
from exo.domain.ids import ApiId, TaskId


class GenerateTask(Frozen):
    """Generate from the payload at `request.<task_id>`, and send the chunks to `chunk.<reply_to>.<task_id>`."""

    type: Literal["GenerateTask"] = "GenerateTask"
    version: Literal[1] = 1
    task_id: TaskId
    reply_to: ApiId
    processes: tuple[str, ...]
    """The runner processes that it was given to, by rank. A later process of the same runner leaves it alone."""
    log_output: bool = False


class CancelTask(Frozen):
    """Stop a generation at the next step."""

    type: Literal["CancelTask"] = "CancelTask"
    version: Literal[1] = 1
    task_id: TaskId


Task = Annotated[GenerateTask | CancelTask, Field(discriminator="type")]
