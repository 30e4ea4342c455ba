"""What the masters are asked: State, what a command led to, and the events of the past. Each has the whole log."""

import logging
from collections.abc import Awaitable, Callable

from pydantic import TypeAdapter

from exo.bus.client import Bus
from exo.bus.questions import answer, ask, ask_all
from exo.domain.ids import MessageId
from exo.domain.messages.events import Recorded
from exo.domain.messages.upcast import UnreadableEvent, read_recorded
from exo.domain.shape import schema_digest
from exo.domain.state import State
from exo.errors import Fatal, Retryable

logger = logging.getLogger(__name__)

_recorded = TypeAdapter(list[Recorded])


async def ask_state(bus: Bus, patience: float) -> State:
    """A master's State. Raises Retryable where none answers within `patience`, seconds, that has this version's."""
    return State.model_validate_json(await ask(bus, "state", schema_digest().encode(), patience))


async def ask_outcome(bus: Bus, message_id: MessageId, patience: float) -> list[Recorded]:
    """The events that a command or report led to; none where no master has acted on it.

    Raises Retryable, and Fatal where a master answers what only a newer version can read.
    """
    return _read(await ask(bus, "outcome", message_id.encode(), patience))


async def ask_events(bus: Bus, after: int, patience: float) -> list[Recorded]:
    """A page of events after a position, from a master's log: what EVENTS no longer holds is there too.

    Raises Retryable where no master has any, and Fatal as `ask_outcome`.
    """
    return _read(await ask(bus, "events", str(after).encode(), patience))


async def ask_rows(bus: Bus, after: int, patience: float) -> bytes | None:
    """A page of another master's log as it keeps it, from the row after a position on; None where none has any."""
    try:
        return await ask(bus, "rows", str(after).encode(), patience)
    except Retryable:
        return None


async def ask_furthest(bus: Bus, wait: float) -> int:
    """The last position that any master's log has, of those who answer within `wait`, seconds. Raises Retryable."""
    return max(map(int, await ask_all(bus, "position", b"", wait)), default=0)


async def answer_queries(
    bus: Bus, state: Callable[[], State], outcome: Callable[[MessageId], Awaitable[list[Recorded]]]
) -> None:
    """Answer about the present, for as long as the connection lives."""

    async def answer_state(question: bytes) -> bytes | None:
        # What another version makes of it would be half a State.
        if question and question != schema_digest().encode():
            logger.warning("a node of another version asked for State, and gets none: bring all nodes to one version")
            return None
        return state().model_dump_json().encode()

    async def answer_outcome(question: bytes) -> bytes:
        return _recorded.dump_json(await outcome(MessageId(question.decode())))

    await answer(bus, "state", answer_state)
    await answer(bus, "outcome", answer_outcome)


async def answer_history(
    bus: Bus,
    position: Callable[[], int],
    events: Callable[[int], Awaitable[list[Recorded]]],
    rows: Callable[[int], Awaitable[bytes | None]],
) -> None:
    """Answer about the past, for as long as the connection lives; silent where there is nothing after a position."""

    async def answer_position(_question: bytes) -> bytes:
        return str(position()).encode()

    async def answer_events(question: bytes) -> bytes | None:
        page = await events(int(question))
        return _recorded.dump_json(page) if page else None

    async def answer_rows(question: bytes) -> bytes | None:
        return await rows(int(question))

    await answer(bus, "position", answer_position, everybody=True)
    await answer(bus, "events", answer_events, everybody=True)
    await answer(bus, "rows", answer_rows, everybody=True)


def _read(answer: bytes) -> list[Recorded]:
    try:
        return read_recorded(answer)
    except UnreadableEvent as error:
        raise Fatal(f"a master answered with what this version of exo cannot read: an event {error}") from error
