"""Signs of life from runners to their worker: plain messages, lost when nobody listens."""

import logging
from collections.abc import Callable

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from exo.bus.client import Bus
from exo.domain.ids import NodeId
from exo.domain.messages.beat import RunnerBeat

logger = logging.getLogger(__name__)


async def publish_beat(bus: Bus, node_id: NodeId, beat: RunnerBeat) -> None:
    """Show a runner's worker that it lives."""
    try:
        await bus.client.publish(bus.subjects.beat(node_id, beat.runner_id), beat.model_dump_json().encode())
    except NatsError as error:
        logger.debug("a beat was not sent: %r", error)


async def subscribe_beats(bus: Bus, node_id: NodeId, receive: Callable[[RunnerBeat], None]) -> None:
    """Have `receive` called with each beat of a node's runners, for as long as the connection lives."""
    await _subscribe(bus, bus.subjects.beats_on(node_id), receive)


async def subscribe_all_beats(bus: Bus, receive: Callable[[RunnerBeat], None]) -> None:
    """Have `receive` called with each beat of every runner, for as long as the connection lives."""
    await _subscribe(bus, bus.subjects.all_of("beat"), receive)


async def _subscribe(bus: Bus, subject: str, receive: Callable[[RunnerBeat], None]) -> None:
    async def received(message: Msg) -> None:
        try:
            receive(RunnerBeat.model_validate_json(message.data))
        except ValidationError as error:
            logger.debug("an unreadable beat on %s: %s", message.subject, error)

    await bus.client.subscribe(subject, cb=received)
