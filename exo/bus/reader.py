"""Reads a stream in order, without gap or double, through reconnects and restarts of the server."""

import asyncio
import logging
from collections.abc import AsyncIterator

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy

from exo.bus.client import CONNECT_PAUSE, Bus

logger = logging.getLogger(__name__)

IDLE_HEARTBEAT = 0.5
"""Seconds; with the client's default a consumer is silent for 12 s and more after a restart of the server."""


async def read_stream(bus: Bus, stream: str, subject: str, start: int) -> AsyncIterator[Msg]:
    """Every message of `subject` from stream sequence `start` on, now and later, without end.

    An ordered consumer that is set up anew after each reconnect. The client's own reset may begin too early, so what
    was seen already is dropped here.
    """
    expected = start
    while True:
        connection = bus.connections
        subscription = await _subscribe(bus, stream, subject, expected)
        try:
            while connection == bus.connections:
                try:
                    message = await subscription.next_msg(timeout=IDLE_HEARTBEAT)
                except TimeoutError:
                    continue
                sequence = message.metadata.sequence.stream
                if sequence >= expected:
                    expected = sequence + 1
                    yield message
        finally:
            await _unsubscribe(subscription)


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
