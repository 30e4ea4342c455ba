"""Questions that a runner alone can answer, asked at its instance's subject. Plain messages, one each way."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from pydantic import BaseModel, TypeAdapter, ValidationError

from exo.bus.client import Bus
from exo.errors import Retryable

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def answer_questions(bus: Bus, subject: str, answer: Callable[[bytes], Awaitable[BaseModel]]) -> None:
    """Answer for as long as the connection lives. A question that takes long holds up no others."""
    answering: set[asyncio.Task[None]] = set()

    async def respond(message: Msg) -> None:
        try:
            await message.respond((await answer(message.data)).model_dump_json().encode())
        except NatsError as error:
            logger.debug("an answer at %s was not sent: %r", subject, error)

    async def received(message: Msg) -> None:
        task = asyncio.create_task(respond(message))
        answering.add(task)
        task.add_done_callback(answering.discard)

    await bus.client.subscribe(subject, cb=received)


async def ask_runner(
    bus: Bus, subject: str, question: bytes, patience: float, answers: TypeAdapter[T], *, gone: str, late: str
) -> T:
    """The answer of the runner that answers at `subject`.

    Raises Retryable: with `gone` where there is none, and with `late` where it does not answer within `patience`,
    seconds.
    """
    try:
        message = await bus.client.request(subject, question, timeout=patience)
        return answers.validate_json(message.data)
    except NoRespondersError as error:
        raise Retryable(gone) from error
    except (NatsError, TimeoutError) as error:
        raise Retryable(f"{late} within {patience:.0f} s: {error!r}") from error
    except ValidationError as error:
        raise Retryable("a runner of another version answered: bring all nodes to one version") from error
