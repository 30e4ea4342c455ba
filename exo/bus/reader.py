"""Reads a stream in order, without gap or double, through reconnects and restarts of the server."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy

from exo.bus.client import CONNECT_PAUSE, Bus
from exo.bus.streams import EVENTS
from exo.process import give_way

logger = logging.getLogger(__name__)

IDLE_HEARTBEAT = 0.5
"""Seconds; with the client's default a consumer is silent for 12 s and more after a restart of the server."""


BATCH_MOST = 1000
"""Messages handed on at once."""


async def read_stream(bus: Bus, stream: str, subject: str, start: int) -> AsyncGenerator[Msg]:
    """Every message of `subject` from stream sequence `start` on, now and later, without end."""
    async with aclosing(read_batches(bus, stream, subject, start)) as batches:
        async for batch in batches:
            for message in batch:
                yield message


async def read_batches(bus: Bus, stream: str, subject: str, start: int) -> AsyncGenerator[list[Msg]]:
    """As `read_stream`, in lists of what is there already: one message when they trickle, many when they pour.

    An ordered consumer that is set up anew after each reconnect. The client's own reset may begin too early, so what
    was seen already is dropped here. A stream that somebody made anew is read from its beginning, except for EVENTS,
    whose numbers go on.
    """
    expected, incarnation = start, bus.incarnations.get(stream)
    while True:
        connection = bus.connections
        if stream != EVENTS and bus.incarnations.get(stream) != incarnation:
            expected, incarnation = 1, bus.incarnations.get(stream)
        subscription = await _subscribe(bus, stream, subject, expected)
        try:
            while connection == bus.connections:
                messages = await _next_batch(subscription)
                give_way()
                batch = [message for message in messages if message.metadata.sequence.stream >= expected]
                if batch:
                    expected = batch[-1].metadata.sequence.stream + 1
                    yield batch
        finally:
            await _unsubscribe(subscription)


async def _next_batch(subscription: JetStreamContext.PushSubscription) -> list[Msg]:
    messages: list[Msg] = []
    try:
        while len(messages) < BATCH_MOST and (not messages or subscription.pending_msgs > 0):
            messages.append(await subscription.next_msg(timeout=IDLE_HEARTBEAT))
    except TimeoutError:
        pass
    return messages


async def _subscribe(bus: Bus, stream: str, subject: str, start: int) -> JetStreamContext.PushSubscription:
    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=max(1, start))
    while True:
        try:
            return await bus.js.subscribe(
                subject, stream=stream, ordered_consumer=True, config=config, idle_heartbeat=IDLE_HEARTBEAT
            )
        except (NatsError, TimeoutError) as error:
            if bus.client.is_closed:
                raise
            logger.debug("reading %s: %r", stream, error)
            await asyncio.sleep(CONNECT_PAUSE)


async def _unsubscribe(subscription: JetStreamContext.PushSubscription) -> None:
    try:
        await subscription.unsubscribe()
    except (NatsError, ValueError) as error:
        logger.debug("unsubscribing: %r", error)
