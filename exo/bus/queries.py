"""Questions to a master, and its answers. Any master can answer: each has the whole log."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import TypeAdapter

from exo.bus.client import CONNECT_PAUSE, Bus
from exo.domain.ids import MessageId
from exo.domain.messages.events import Recorded
from exo.domain.messages.upcast import UnreadableEvent, read_recorded
from exo.domain.state import State
from exo.errors import ExoError, Fatal, Retryable

logger = logging.getLogger(__name__)

ANSWERERS = "masters"
"""Queue group: one of the masters answers."""
ATTEMPT = 2.0
"""Seconds for one try."""

T = TypeVar("T")
_recorded = TypeAdapter(list[Recorded])
Answer = Callable[[bytes], Awaitable[bytes]]


async def ask_state(bus: Bus, patience: float) -> State:
    """A master's State. Raises Retryable where none answers within `patience`, seconds."""
    return State.model_validate_json(await _ask(bus, "state", b"", patience))


async def ask_outcome(bus: Bus, message_id: MessageId, patience: float) -> list[Recorded]:
    """The events that a command or report led to; none where no master has acted on it.

    Raises Retryable, and Fatal where a master answers what only a newer version can read.
    """
    answer = await _ask(bus, "outcome", message_id.encode(), patience)
    try:
        return read_recorded(answer)
    except UnreadableEvent as error:
        raise Fatal(f"a master answered with what this version of exo cannot read: an event {error}") from error


async def answer_queries(
    bus: Bus, state: Callable[[], State], outcome: Callable[[MessageId], Awaitable[list[Recorded]]]
) -> None:
    """Answer for as long as the connection lives."""

    async def answer_state(_question: bytes) -> bytes:
        return state().model_dump_json().encode()

    async def answer_outcome(question: bytes) -> bytes:
        return _recorded.dump_json(await outcome(MessageId(question.decode())))

    await _answer(bus, "state", answer_state)
    await _answer(bus, "outcome", answer_outcome)


async def _answer(bus: Bus, name: str, answer: Answer) -> None:
    async def received(message: Msg) -> None:
        try:
            await message.respond(await answer(message.data))
        except (NatsError, ExoError) as error:
            logger.warning("a question about %s stays unanswered: %s", name, error)

    await bus.client.subscribe(bus.subjects.query(name), queue=ANSWERERS, cb=received)


async def _ask(bus: Bus, name: str, question: bytes, patience: float) -> bytes:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        try:
            return (await bus.client.request(bus.subjects.query(name), question, timeout=ATTEMPT)).data
        except (NatsError, TimeoutError) as error:
            if loop.time() > deadline:
                raise Retryable(f"no master answered within {patience:.0f} s") from error
            await asyncio.sleep(CONNECT_PAUSE)
