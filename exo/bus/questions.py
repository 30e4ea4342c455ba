"""Questions to the masters and their answers, however long: as many messages as it takes, in the order they came."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from exo.bus.client import CONNECT_PAUSE, Bus, new_id
from exo.errors import ExoError, Retryable

logger = logging.getLogger(__name__)

ANSWERERS = "masters"
"""Queue group: one of the masters answers."""
ATTEMPT = 2.0
"""Seconds for one try, and between two parts of an answer."""
PART_MOST = 4 * 2**20
"""Bytes of an answer in one message, which may have 8 MB."""
ANSWER_HEADER, PARTS_HEADER = "Exo-Answer", "Exo-Parts"
"""Which answer a message belongs to, and how many messages that answer has."""

Answer = Callable[[bytes], Awaitable[bytes | None]]
"""Gives None where this master has nothing to say."""


async def answer(bus: Bus, name: str, answer: Answer, *, everybody: bool = False) -> None:
    """Answer questions of a name for as long as the connection lives. `everybody`: each master is asked, not one."""

    async def received(message: Msg) -> None:
        try:
            text = await answer(message.data)
            if text is not None:
                await _send(bus, message.reply, text)
        except (NatsError, ExoError) as error:
            logger.warning("a question about %s stays unanswered: %s", name, error)

    await bus.client.subscribe(bus.subjects.query(name), queue="" if everybody else ANSWERERS, cb=received)


async def ask(bus: Bus, name: str, question: bytes, patience: float) -> bytes:
    """The first whole answer of a master. Raises Retryable where none came within `patience`, seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        try:
            return await _attempt(bus.client, bus.subjects.query(name), question)
        except (NatsError, TimeoutError) as error:
            if loop.time() > deadline:
                raise Retryable(f"no master answered within {patience:.0f} s") from error
            await asyncio.sleep(CONNECT_PAUSE)


async def ask_all(bus: Bus, name: str, question: bytes, wait: float) -> list[bytes]:
    """The answers that come within `wait`, seconds; short ones, of one part. Raises Retryable where NATS is away."""
    answers: list[bytes] = []
    inbox = bus.client.new_inbox()
    try:
        subscription = await bus.client.subscribe(inbox)
        try:
            await bus.client.publish(bus.subjects.query(name), question, reply=inbox)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    async for message in subscription.messages:
                        answers.append(message.data)  # noqa: PERF401  those that came before the time was up count
        finally:
            if not bus.client.is_closed:
                await subscription.unsubscribe()
    except NatsError as error:
        raise Retryable(f"the masters cannot be asked: {error!r}") from error
    return [text for text in answers if text]  # an empty one is the server's word that nobody listens


async def _attempt(client: Client, subject: str, question: bytes) -> bytes:
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        await client.publish(subject, question, reply=inbox)
        answers: dict[str, list[bytes]] = {}
        while True:
            message = await subscription.next_msg(timeout=ATTEMPT)
            headers = message.headers or {}
            if headers.get("Status") == "503":
                raise NoRespondersError
            parts = answers.setdefault(headers.get(ANSWER_HEADER, ""), [])
            parts.append(message.data)
            if len(parts) == int(headers.get(PARTS_HEADER, "1")):
                return b"".join(parts)
    finally:
        if not client.is_closed:
            await subscription.unsubscribe()


async def _send(bus: Bus, inbox: str, text: bytes) -> None:
    parts = [text[begin : begin + PART_MOST] for begin in range(0, len(text), PART_MOST)] or [b""]
    headers = {ANSWER_HEADER: new_id(), PARTS_HEADER: str(len(parts))}
    for part in parts:
        await bus.client.publish(inbox, part, headers=headers)
