"""The stream `EVENTS`: one fenced writer, and readers who follow it."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from pydantic import TypeAdapter, ValidationError

from exo.bus.client import REQUEST_TIMEOUT, Bus, asking, new_id
from exo.bus.reader import read_batches
from exo.bus.streams import EVENTS, event_stream_config
from exo.domain.messages.events import Entry, Recorded
from exo.errors import ExoError, Fatal, Retryable

BATCH_MOST = 1000
"""Messages in one atomic batch: the server's limit."""
SINGLES_MOST = 4
"""Up to so many lone entries are quicker one by one: 0.2 ms each, against 2 ms for a batch of any size."""
_WRONG_SEQUENCE = frozenset({10071, 10164})
"""The server's codes for an expected last sequence that is not the last."""

_entries = TypeAdapter(Entry)


class Fenced(ExoError):  # noqa: N818  (the design's word)
    """Somebody else wrote to EVENTS: this master no longer leads."""


async def append(bus: Bus, units: Sequence[Sequence[Entry]], last: int) -> list[Recorded]:
    """Record entries right after position `last`, in order. Each unit is recorded whole or not at all.

    Every message, or atomic batch of them, states the last sequence that it expects, and the next waits for its
    confirmation: pipelined expectations are no fence. Raises Fenced where the last position is another, Retryable
    where the server's answer stayed away: entries may be recorded then, so the end of the stream has to be read again.
    """
    recorded: list[Recorded] = []
    for batch in _batches(units):
        end = await _append_batch(bus, batch, last)
        if end != last + len(batch):
            raise Fenced(f"the batch after {last} ended at {end}, not at {last + len(batch)}")
        recorded += [Recorded(position=last + 1 + index, entry=entry) for index, entry in enumerate(batch)]
        last = end
    return recorded


def _batches(units: Sequence[Sequence[Entry]]) -> list[list[Entry]]:
    """Few lone entries go one by one, which is quicker; else as many units in one atomic batch as fit.

    A unit larger than the server's limit is cut: nothing that a decision gives comes near it.
    """
    if len(units) <= SINGLES_MOST and all(len(unit) == 1 for unit in units):
        return [list(unit) for unit in units]
    batches: list[list[Entry]] = [[]]
    for unit in units:
        for begin in range(0, len(unit), BATCH_MOST):
            piece = unit[begin : begin + BATCH_MOST]
            if len(batches[-1]) + len(piece) > BATCH_MOST:
                batches.append([])
            batches[-1] += piece
    return [batch for batch in batches if batch]


async def _append_batch(bus: Bus, batch: Sequence[Entry], last: int) -> int:
    batch_id = new_id()
    for number, entry in enumerate(batch, 1):
        headers = {"Nats-Expected-Last-Sequence": str(last)} if number == 1 else {}
        if len(batch) > 1:
            headers |= {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
        subject, payload = bus.subjects.event(entry.event.type), entry.model_dump_json().encode()
        if number == len(batch):
            if len(batch) > 1:
                headers["Nats-Batch-Commit"] = "1"
            return await _commit(bus, subject, payload, headers)
        with asking("EVENTS did not take a batch"):
            await bus.client.publish(subject, payload, headers=headers)
    return last


async def _commit(bus: Bus, subject: str, payload: bytes, headers: dict[str, str]) -> int:
    with asking("EVENTS did not confirm"):
        reply = await bus.client.request(subject, payload, timeout=REQUEST_TIMEOUT, headers=headers)
    answer = json.loads(reply.data)
    if "error" not in answer:
        return int(answer["seq"])
    if answer["error"]["err_code"] in _WRONG_SEQUENCE:
        raise Fenced(answer["error"]["description"])
    raise Retryable(f"EVENTS refused: {answer['error']['description']}")


async def bounds(bus: Bus) -> tuple[int, int]:
    """The first and the last position that EVENTS holds. An empty stream: (next, next - 1). Raises Retryable."""
    with asking("EVENTS cannot be read"):
        state = (await bus.js.stream_info(EVENTS)).state
    return (state.first_seq if state.messages else state.last_seq + 1), state.last_seq


async def entry_at(bus: Bus, position: int) -> Entry | None:
    """What EVENTS holds at a position; None where it holds nothing there. Raises Retryable."""
    try:
        message = await bus.js.get_msg(EVENTS, seq=position, direct=True)
    except NotFoundError:
        return None
    except (NatsError, TimeoutError) as error:
        raise Retryable(f"EVENTS cannot be read: {error!r}") from error
    return _entry(position, message.data or b"")


async def begin_at(bus: Bus, first: int) -> None:
    """Make EVENTS anew, for a stream that lost everything: the next position is `first`. Raises Retryable."""
    with asking("EVENTS cannot be made anew"):
        await bus.js.delete_stream(EVENTS)
        await bus.js.add_stream(event_stream_config(bus.subjects, first_seq=first))


async def follow(bus: Bus, after: int) -> AsyncGenerator[list[Recorded]]:
    """Every event after a position, in order, now and later, in lists of those that are there already.

    Raises Fatal for one that this version cannot read.
    """
    async with aclosing(read_batches(bus, EVENTS, bus.subjects.all_of("event"), after + 1)) as batches:
        async for batch in batches:
            yield [_recorded(message) for message in batch]


def _recorded(message: Msg) -> Recorded:
    position = message.metadata.sequence.stream
    return Recorded(position=position, entry=_entry(position, message.data))


def _entry(position: int, payload: bytes) -> Entry:
    try:
        return _entries.validate_json(payload)
    except ValidationError as error:
        raise Fatal(
            f"the stream EVENTS holds at position {position} what this version of exo cannot read: a newer one "
            "wrote it. Upgrade this node"
        ) from error
