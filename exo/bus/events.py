"""The stream `EVENTS`: one fenced writer, and readers who follow it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from exo.bus.client import REQUEST_TIMEOUT, Bus, asking, new_id
from exo.bus.reader import read_batches
from exo.bus.streams import EVENTS, event_stream_config
from exo.domain.messages.events import Entry, Recorded
from exo.domain.messages.upcast import UnreadableEvent, read_entry
from exo.errors import ExoError, Fatal, Retryable

BATCH_MOST = 1000
"""Messages in one atomic batch: the server's limit."""
CHAIN_MOST = 16
"""Up to so many lone entries are quicker as a chain of messages: 0.3 ms for two, against 2 ms for any batch."""
_WRONG_LAST = frozenset({10070, 10071, 10164})
"""The server's codes for an expected last message, or last sequence, that is not the last."""


class Fenced(ExoError):  # noqa: N818  (the design's word)
    """Somebody else wrote to EVENTS: this master no longer leads."""


async def append(bus: Bus, units: Sequence[Sequence[Entry]], last: int) -> list[Recorded]:
    """Record entries right after position `last`, in order. Each unit is recorded whole or not at all.

    Raises Fenced where the last position is another, Retryable where the server's answer stayed away. Some entries may
    be recorded either way, so the end of the stream has to be read again.
    """
    entries = [entry for unit in units for entry in unit]
    if len(entries) == len(units) <= CHAIN_MOST:
        await _append_chain(bus, entries, last)
    else:
        await _append_batches(bus, _batches(units), last)
    return [Recorded(position=last + number, entry=entry) for number, entry in enumerate(entries, 1)]


async def _append_chain(bus: Bus, entries: Sequence[Entry], last: int) -> None:
    """Lone entries, sent at once: the first states the last sequence that it expects, each other the message before.

    Expected sequences alone would be no fence for messages on the way: one of somebody else's fills a place, and the
    rest fit again.
    """
    previous, requests = "", list[Coroutine[object, object, int]]()
    for entry in entries:
        expected = {"Nats-Expected-Last-Msg-Id": previous} if previous else {"Nats-Expected-Last-Sequence": str(last)}
        previous = new_id()
        requests.append(_confirmed(bus, entry, {"Nats-Msg-Id": previous, **expected}))
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    for number, outcome in enumerate(outcomes, 1):
        if isinstance(outcome, BaseException):
            raise outcome
        _check(outcome, last + number)


async def _append_batches(bus: Bus, batches: Sequence[Sequence[Entry]], last: int) -> None:
    """Atomic batches, each sent when the one before is confirmed."""
    for batch in batches:
        batch_id = new_id()
        for number, entry in enumerate(batch, 1):
            headers = {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
            if number == 1:
                headers["Nats-Expected-Last-Sequence"] = str(last)
            if number == len(batch):
                headers["Nats-Batch-Commit"] = "1"
                _check(await _confirmed(bus, entry, headers), last + len(batch))
                break
            with asking("EVENTS did not take a batch"):
                await bus.client.publish(bus.subjects.event(entry.event.type), _payload(entry), headers=headers)
        last += len(batch)


def _batches(units: Sequence[Sequence[Entry]]) -> list[list[Entry]]:
    """As many units in one batch as fit. One that is larger is cut: nothing that a decision gives comes near it."""
    batches: list[list[Entry]] = [[]]
    for unit in units:
        for begin in range(0, len(unit), BATCH_MOST):
            piece = unit[begin : begin + BATCH_MOST]
            if len(batches[-1]) + len(piece) > BATCH_MOST:
                batches.append([])
            batches[-1] += piece
    return [batch for batch in batches if batch]


def _check(got: int, expected: int) -> None:
    if got != expected:
        raise Fenced(f"an event was recorded at {got}, not at {expected}")


def _payload(entry: Entry) -> bytes:
    return entry.model_dump_json().encode()


async def _confirmed(bus: Bus, entry: Entry, headers: dict[str, str]) -> int:
    """The last sequence of the stream, once it holds the entry, or the batch that ends with it."""
    subject = bus.subjects.event(entry.event.type)
    with asking("EVENTS did not confirm"):
        reply = await bus.client.request(subject, _payload(entry), timeout=REQUEST_TIMEOUT, headers=headers)
    answer = json.loads(reply.data)
    if "error" not in answer:
        return int(answer["seq"])
    if answer["error"]["err_code"] in _WRONG_LAST:
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
        return read_entry(payload)
    except UnreadableEvent as error:
        raise Fatal(
            f"the stream EVENTS holds at position {position} what this version of exo cannot read: the event {error}"
        ) from error
