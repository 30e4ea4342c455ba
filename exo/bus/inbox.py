"""The master's inbox: commands and reports go in, the leading master takes them out."""

import time
from contextlib import suppress
from dataclasses import dataclass

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from pydantic import TypeAdapter, ValidationError

from exo.bus.client import ATTEMPT_HEADER, Bus, asking, new_id, publish
from exo.bus.streams import INBOX
from exo.domain.ids import MessageId
from exo.domain.messages.commands import Command
from exo.domain.messages.envelope import Envelope
from exo.domain.messages.reports import Report
from exo.process import give_way

CONSUMER = "master"
ACK_WAIT = 10.0
"""Seconds after which an unacknowledged message comes again."""
MESSAGE_MOST = 2**20
"""Bytes of a message that is decided on: what follows from it has to fit into messages of EVENTS, of 8 MB each."""
PATIENCE = 10.0
"""Seconds that a sender waits for the inbox to take its message."""

_envelopes = TypeAdapter(Envelope)


async def send_command(bus: Bus, source: str, command: Command, patience: float = PATIENCE) -> MessageId:
    """Put a command into the inbox; the id by which its outcome is found. Raises Retryable where NATS stays away."""
    return await _send(bus, bus.subjects.command(command.type), source, command, patience)


async def send_report(bus: Bus, source: str, report: Report, patience: float = PATIENCE) -> MessageId:
    """Put a report into the inbox. Raises Retryable where NATS stays away."""
    return await _send(bus, bus.subjects.report(report.type), source, report, patience)


async def _send(bus: Bus, subject: str, source: str, body: Command | Report, patience: float) -> MessageId:
    message_id = MessageId(new_id())
    envelope = Envelope(message_id=message_id, source=source, sent_at=time.time(), body=body)
    await publish(bus, subject, envelope.model_dump_json().encode(), message_id, patience)
    return message_id


@dataclass(slots=True)
class Received:
    """A message out of the inbox. `envelope` is None where it could not be read."""

    message: Msg
    envelope: Envelope | None
    may_repeat: bool
    """Whether a message of the same id may have been here before. The server drops a second one for two minutes, so
    a first try that is newer than everything that was here cannot be one."""
    problem: str = ""

    async def ack(self) -> None:
        """It is dealt with and does not come again."""
        await self.message.ack()


class Inbox:
    """The leading master's side. Taken over whole: what an earlier leader left unacknowledged comes at once."""

    def __init__(self, subscription: JetStreamContext.PullSubscription, old: int) -> None:
        """`old`: the stream's last sequence when it was taken over; up to there an earlier leader may have acted."""
        self._subscription = subscription
        self._newest = old
        """The highest sequence that a leader has had. A server that was killed does not know what it delivered last:
        what it delivers again counts as delivered for the first time."""

    @classmethod
    async def take_over(cls, bus: Bus) -> "Inbox":
        """The inbox, with everything in it that is not acknowledged. Raises Retryable where NATS stays away."""
        with asking("the inbox cannot be taken over"):
            return await cls._take_over(bus)

    @classmethod
    async def _take_over(cls, bus: Bus) -> "Inbox":
        with suppress(NotFoundError):
            await bus.js.delete_consumer(INBOX, CONSUMER)
        config = ConsumerConfig(
            durable_name=CONSUMER,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            deliver_policy=DeliverPolicy.ALL,
            max_ack_pending=10_000,
        )
        await bus.js.add_consumer(INBOX, config)
        old = (await bus.js.stream_info(INBOX)).state.last_seq
        return cls(await bus.js.pull_subscribe_bind(consumer=CONSUMER, stream=INBOX), old)

    async def fetch(self, most: int, timeout: float) -> list[Received]:
        """The next messages, in order: as soon as there is one, with it all that wait already, at most `most`.

        Empty where none comes within `timeout`, seconds. Raises Retryable where another leader took the inbox over.
        """
        with asking("the inbox cannot be read"):
            messages = await self._fetch(most, timeout)
        give_way()
        return [self._received(message) for message in messages]

    async def _fetch(self, most: int, timeout: float) -> list[Msg]:
        try:
            messages = await self._subscription.fetch(1, timeout=timeout)
        except TimeoutError:
            return []
        waiting = min(most - 1, messages[-1].metadata.num_pending)
        if waiting > 0:
            with suppress(TimeoutError):  # what is here already is not given up for what does not come
                messages += await self._subscription.fetch(waiting, timeout=timeout)
        return messages

    async def close(self) -> None:
        """Leave the inbox to the next leader."""
        await self._subscription.unsubscribe()

    def _received(self, message: Msg) -> Received:
        metadata, headers = message.metadata, message.headers or {}
        if len(message.data) > MESSAGE_MOST:
            problem = f"it has {len(message.data)} bytes, and {MESSAGE_MOST} are the most"
            return Received(message, None, may_repeat=False, problem=problem)
        sequence = metadata.sequence.stream
        repeats = metadata.num_delivered > 1 or sequence <= self._newest or ATTEMPT_HEADER in headers
        self._newest = max(self._newest, sequence)
        try:
            return Received(message, _envelopes.validate_json(message.data), repeats)
        except ValidationError as error:
            problem = f"{error.error_count()} problems, the first: {error.errors()[0]['msg']}"
            return Received(message, None, repeats, problem)
