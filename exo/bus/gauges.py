"""Live figures: one key a node, the last value wins, gone when the node is silent. Never logged."""

import logging
from collections.abc import Callable

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from exo.bus.client import Bus
from exo.bus.streams import GAUGES
from exo.domain.node import NodeGauges

logger = logging.getLogger(__name__)


async def publish_gauges(bus: Bus, gauges: NodeGauges) -> None:
    """Show a node's figures, and that it lives. Silent where NATS is away: the next ones follow soon."""
    try:
        bucket = await bus.js.key_value(GAUGES)
        await bucket.put(gauges.node_id, gauges.model_dump_json().encode())
    except (NatsError, TimeoutError) as error:
        logger.debug("gauges were not taken: %r", error)


async def subscribe_gauges(bus: Bus, receive: Callable[[NodeGauges], None]) -> None:
    """Have `receive` called with each node's figures as they come, for as long as the connection lives.

    A plain subscription to the bucket's subjects: unlike a consumer it outlives a restart that empties the bucket.
    """

    async def received(message: Msg) -> None:
        try:
            receive(NodeGauges.model_validate_json(message.data))
        except ValidationError as error:
            logger.debug("unreadable gauges on %s: %s", message.subject, error)

    await bus.client.subscribe(f"$KV.{GAUGES}.*", cb=received)
