"""The stream `TASKS`: what each instance's runners are told."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import TypeAdapter, ValidationError

from exo.bus.client import REQUEST_TIMEOUT, Bus, asking, publish
from exo.bus.reader import read_stream
from exo.bus.streams import TASKS
from exo.domain.ids import InstanceId
from exo.domain.messages.tasks import Task, message_id

logger = logging.getLogger(__name__)

_tasks: TypeAdapter[Task] = TypeAdapter(Task)


async def publish_task(bus: Bus, instance_id: InstanceId, task: Task) -> None:
    """Tell an instance's runners something, once however often it is called. Raises Retryable."""
    payload = task.model_dump_json().encode()
    await publish(bus, bus.subjects.task(instance_id), payload, message_id(task), REQUEST_TIMEOUT)


async def purge_tasks(bus: Bus, instance_id: InstanceId) -> None:
    """Forget an instance's tasks. Raises Retryable."""
    with asking("TASKS could not be purged"):
        await bus.js.purge_stream(TASKS, subject=bus.subjects.task(instance_id))


async def last_task(bus: Bus) -> int:
    """The stream's last sequence: tasks after it are new. Raises Retryable."""
    with asking("TASKS cannot be read"):
        return (await bus.js.stream_info(TASKS)).state.last_seq


async def follow_tasks(bus: Bus, instance_id: InstanceId, after: int) -> AsyncGenerator[Task]:
    """An instance's tasks after a stream sequence, in order, now and later. What cannot be read is left out."""
    async with aclosing(read_stream(bus, TASKS, bus.subjects.task(instance_id), after + 1)) as messages:
        async for message in messages:
            try:
                task = _tasks.validate_json(message.data)
            except ValidationError as error:
                logger.error("left an unreadable task of %s out: %s", instance_id, error.errors()[0]["msg"])
                continue
            yield task
