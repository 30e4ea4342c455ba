"""Signs of life, from runners to their worker and from API processes to the master: plain messages, lost when nobody
listens."""

import logging
from collections.abc import Callable
from typing import TypeVar

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from exo.bus.client import Bus
from exo.domain.ids import NodeId
from exo.domain.messages.beat import ApiBeat, RunnerBeat

logger = logging.getLogger(__name__)

B = TypeVar("B", RunnerBeat, ApiBeat)


async def publish_beat(bus: Bus, node_id: NodeId, beat: RunnerBeat) -> None:
    """Show a runner's worker that it lives."""
    await _publish(bus, bus.subjects.beat(node_id, beat.runner_id), beat)


async def publish_api_beat(bus: Bus, beat: ApiBeat) -> None:
    """Show the master that an API process lives."""
    await _publish(bus, bus.subjects.api_beat(beat.api_id), beat)


async def subscribe_beats(bus: Bus, node_id: NodeId, receive: Callable[[RunnerBeat], None]) -> None:
    """Have `receive` called with each beat of a node's runners, for as long as the connection lives."""
    await _subscribe(bus, bus.subjects.beats_on(node_id), RunnerBeat, receive)


async def subscribe_all_beats(bus: Bus, receive: Callable[[RunnerBeat], None]) -> None:
    """Have `receive` called with each beat of every runner, for as long as the connection lives."""
    await _subscribe(bus, bus.subjects.all_of("beat"), RunnerBeat, receive)


async def subscribe_api_beats(bus: Bus, receive: Callable[[ApiBeat], None]) -> None:
    """Have `receive` called with each beat of every API process, for as long as the connection lives."""
    await _subscribe(bus, bus.subjects.all_of("api_beat"), ApiBeat, receive)


async def _publish(bus: Bus, subject: str, beat: RunnerBeat | ApiBeat) -> None:
    try:
        await bus.client.publish(subject, beat.model_dump_json().encode())
    except NatsError as error:
        logger.debug("a beat was not sent: %r", error)


async def _subscribe(bus: Bus, subject: str, kind: type[B], receive: Callable[[B], None]) -> None:
    async def received(message: Msg) -> None:
        try:
            receive(kind.model_validate_json(message.data))
        except ValidationError as error:
            logger.debug("an unreadable beat on %s: %s", message.subject, error)

    await bus.client.subscribe(subject, cb=received)
