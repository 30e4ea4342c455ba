"""How many tokens a prompt has: asked of a runner, which alone has the model's tokenizer. Plain messages; the prompt
itself lies in `REQUESTS`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from pydantic import TypeAdapter, ValidationError

from exo.bus.client import Bus
from exo.domain.ids import InstanceId, TaskId
from exo.domain.messages.counts import CountAnswer, CountRefused, TokensCounted
from exo.errors import Rejected, Retryable

logger = logging.getLogger(__name__)

Count = Callable[[TaskId], Awaitable[int]]
"""Tokens of the prompt that lies under a task's id. May raise Rejected."""

_answers: TypeAdapter[CountAnswer] = TypeAdapter(CountAnswer)


async def answer_counts(bus: Bus, instance_id: InstanceId, count: Count) -> None:
    """Answer for an instance, for as long as the connection lives. Long prompts hold up no others."""
    counting: set[asyncio.Task[None]] = set()

    async def answer(message: Msg) -> None:
        try:
            await message.respond((await _counted(count, TaskId(message.data.decode()))).model_dump_json().encode())
        except NatsError as error:
            logger.debug("a count was not sent: %r", error)

    async def received(message: Msg) -> None:
        task = asyncio.create_task(answer(message))
        counting.add(task)
        task.add_done_callback(counting.discard)

    await bus.client.subscribe(bus.subjects.count(instance_id), cb=received)


async def ask_count(bus: Bus, instance_id: InstanceId, task_id: TaskId, patience: float) -> int:
    """The tokens of the prompt that lies under a task's id, by an instance's runner.

    Raises Rejected where the model refuses the prompt, and Retryable where nobody answers within `patience`, seconds.
    """
    subject = bus.subjects.count(instance_id)
    try:
        message = await bus.client.request(subject, task_id.encode(), timeout=patience)
        answer = _answers.validate_json(message.data)
    except NoRespondersError as error:
        raise Retryable("the runner that would count the tokens is gone") from error
    except (NatsError, TimeoutError) as error:
        raise Retryable(f"the tokens were not counted within {patience:.0f} s: {error!r}") from error
    except ValidationError as error:
        raise Retryable("a runner of another version answered: bring all nodes to one version") from error
    if isinstance(answer, CountRefused):
        raise Rejected(answer.reason, code=answer.code, param=answer.param)
    return answer.tokens


async def _counted(count: Count, task_id: TaskId) -> CountAnswer:
    try:
        return TokensCounted(tokens=await count(task_id))
    except Rejected as refusal:
        return CountRefused(code=refusal.code, reason=refusal.reason, param=refusal.param)
