"""Tasks: what the runners of one instance are told, in one order for all ranks."""

from typing import Annotated, Literal, assert_never

from pydantic import Field

from exo.domain.base import Frozen
from exo.domain.ids import ApiId, TaskId
from exo.domain.prefill import PrefillSource


class GenerateTask(Frozen):
    """Generate from the payload at `request.<task_id>`, and send the chunks to `chunk.<reply_to>.<task_id>`."""

    type: Literal["GenerateTask"] = "GenerateTask"
    version: Literal[1] = 1
    task_id: TaskId
    reply_to: ApiId
    processes: tuple[str, ...]
    """The runner processes that it was given to, by rank. A later process of the same runner leaves it alone."""
    log_output: bool = False
    prefill: PrefillSource | None = None
    """Who may be asked for the KV state of the prompt."""


class CancelTask(Frozen):
    """Stop a generation at the next step."""

    type: Literal["CancelTask"] = "CancelTask"
    version: Literal[1] = 1
    task_id: TaskId


class ConnectTask(Frozen):
    """Form the group: every rank has a process that waits for its peers, and these are they, by rank.

    A process that is not named in `processes` leaves it alone, and so does one that is connected already.
    """

    type: Literal["ConnectTask"] = "ConnectTask"
    version: Literal[1] = 1
    processes: tuple[str, ...]
    addresses: tuple[str, ...]
    """`host:port` of each rank."""


Task = Annotated[GenerateTask | CancelTask | ConnectTask, Field(discriminator="type")]


def message_id(task: Task) -> str:
    """The id by which a task that is published again is known."""
    match task:
        case ConnectTask():
            return "-".join(("ConnectTask", *task.processes))
        case GenerateTask() | CancelTask():
            return f"{task.type}-{task.task_id}"
        case _:
            assert_never(task)
