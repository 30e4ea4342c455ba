"""The leading master's loop: take messages, decide, record, fold, act, acknowledge."""

import asyncio
import logging
import time
from collections.abc import Sequence

from exo.bus import events
from exo.bus.client import Bus, new_id
from exo.bus.inbox import Inbox, Received
from exo.bus.lease import Lease
from exo.bus.streams import LEASE_TTL
from exo.bus.tasks import publish_task, purge_tasks
from exo.domain.advance import advance
from exo.domain.effects import Effect, PublishTask, PurgeTasks, effects, outstanding
from exo.domain.fold import fold
from exo.domain.ids import MessageId, NodeId
from exo.domain.messages.envelope import Envelope
from exo.domain.messages.events import CommandRejected, Entry, Event, MasterElected, Recorded
from exo.domain.react import react
from exo.domain.state import State
from exo.errors import Retryable
from exo.log.snapshots import SNAPSHOT_EVERY
from exo.log.store import LogStore
from exo.master.signs import Signs

logger = logging.getLogger(__name__)

TICK = 1.0
"""Seconds between two looks at deadlines, and two renewals of the lease."""
FETCH_MOST = 256
"""Messages decided on together: one append, one transaction."""


class Leader:
    """Decides for as long as it holds the lease. `state` is always the fold of what the log holds."""

    def __init__(
        self,
        bus: Bus,
        store: LogStore,
        lease: Lease,
        node_id: NodeId,
        state: State,
        signs: Signs,
        queue_most: int,
    ) -> None:
        """`queue_most`: how many generations may wait for one model."""
        self._bus = bus
        self._store = store
        self._lease = lease
        self._node_id = node_id
        self.state = state
        self._signs = signs
        self._queue_most = queue_most
        self._began = time.monotonic()
        self._ticked = self._began
        self._snapshot_at = state.position
        self._recording = state
        self._units: list[list[Entry]] = []
        self._acted_on = 0
        """The connection, or set of streams, on which the outstanding tasks were published."""

    async def lead(self) -> None:
        """Decide without end. Raises Fenced or Retryable when it leads no longer, Fatal when it cannot go on."""
        self._record([MasterElected(node_id=self._node_id, epoch=self.state.epoch + 1)], None, self._node_id)
        await self._commit()
        logger.info("leading, epoch %d, from position %d", self.state.epoch, self.state.position)
        await self._act_again()
        inbox = await Inbox.take_over(self._bus)
        while True:
            left = self._ticked + TICK - time.monotonic()
            received = await inbox.fetch(FETCH_MOST, timeout=max(0.01, left))
            if received:
                await self._decide(received)
            if self._acted_on != self._bus.connections:
                await self._act_again()
            if time.monotonic() - self._ticked >= TICK:
                await self._tick()

    async def _act_again(self) -> None:
        """Make sure of every task that is to be there: an earlier leader may have died before it, or a stream since."""
        self._acted_on = self._bus.connections
        for effect in outstanding(self.state):
            await self._perform(effect)

    async def _decide(self, batch: list[Received]) -> None:
        suspects = [received.envelope.message_id for received in batch if received.envelope and received.may_repeat]
        seen = set(await self._store.seen(suspects)) if suspects else set[MessageId]()
        for received in batch:
            if received.envelope is None:
                logger.error("dropped an unreadable message on %s: %s", received.message.subject, received.problem)
            elif received.envelope.message_id not in seen:
                seen.add(received.envelope.message_id)
                self._react(received.envelope)
        await self._commit()
        for received in batch:
            await received.ack()

    def _react(self, envelope: Envelope) -> None:
        try:
            units = react(self._recording, envelope.body, self._now(), new_id, self._queue_most)
        except Exception:
            logger.exception("deciding on %s failed", envelope.body.type)
            reason = "deciding on it failed; the master's output has the traceback"
            units = [[CommandRejected(command=envelope.body.type, code="internal_error", reason=reason)]]
        for unit in units:
            self._record(unit, envelope.message_id, envelope.source)

    async def _tick(self) -> None:
        stalled = time.monotonic() - self._ticked
        self._ticked = time.monotonic()
        if stalled > LEASE_TTL:
            raise Retryable(f"this process stood still for {stalled:.1f} s")
        if not await self._lease.renew():
            raise Retryable("the lease could not be renewed")
        self._record(self._due(), None, self._node_id)
        await self._commit()

    def _due(self) -> list[Event]:
        try:
            state, now = self._recording, self._now()
            last_beats = self._signs.last_beats(state, self._began, now)
            return advance(state, now, new_id, last_beats, self._signs.last_read(state, self._began, now))
        except Exception:
            logger.exception("looking at what is due failed; messages are decided on all the same")
            return []

    def _now(self) -> float:
        return max(time.time(), self._recording.time)

    def _record(self, unit: Sequence[Event], cause_id: MessageId | None, source: str) -> None:
        """Have events recorded with the next commit, all or none of them; later decisions rest on them already."""
        entries: list[Entry] = []
        for event in unit:
            entry = Entry(recorded_at=self._now(), cause_id=cause_id, source=source, event=event)
            self._recording = fold(self._recording, Recorded(position=self._recording.position + 1, entry=entry))
            entries.append(entry)
        if entries:
            self._units.append(entries)

    async def _commit(self) -> None:
        """Record, keep, fold, act: nothing is acted on that EVENTS does not hold.

        SQLite commits while the tasks go out, since a commit is in the way of every first token; the caller
        acknowledges when both are done. A master that dies in between finds the events in the stream.
        """
        units, self._units = self._units, []
        if not units:
            return
        recorded = await events.append(self._bus, units, self.state.position)
        keeping, acting = self._store.append(recorded), self._act(recorded, self._recording)
        for outcome in await asyncio.gather(keeping, acting, return_exceptions=True):
            if outcome is not None:
                raise outcome
        self.state = self._recording
        if self.state.position - self._snapshot_at >= SNAPSHOT_EVERY:
            self._snapshot_at = self.state.position
            await self._store.write_snapshot(self.state)

    async def _act(self, recorded: Sequence[Recorded], state: State) -> None:
        for one in recorded:
            for effect in effects(state, one.entry.event):
                await self._perform(effect)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case PublishTask(instance_id, task):
                await publish_task(self._bus, instance_id, task)
            case PurgeTasks(instance_id):
                await purge_tasks(self._bus, instance_id)
