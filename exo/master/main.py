"""The master's process: follows the log until the lease is its own, leads until it is not."""

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from functools import partial

from exo.bus.beats import subscribe_api_beats
from exo.bus.client import Bus, connect
from exo.bus.events import Fenced, bounds, follow
from exo.bus.gauges import subscribe_gauges
from exo.bus.lease import Lease
from exo.bus.queries import answer_history, answer_queries
from exo.config import Settings
from exo.domain.fold import fold
from exo.domain.ids import MessageId, NodeId
from exo.domain.limits import QUEUE_PER_MODEL
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Fatal, Retryable
from exo.log.connections import DiskFull
from exo.log.damage import LogDamaged
from exo.log.starting import load_checked
from exo.log.store import LogStore
from exo.master.history import catch_up, events_page, rows_answer
from exo.master.leader import Leader
from exo.master.mending import mended
from exo.master.reconcile import caught_up, check, reconcile
from exo.master.signs import Signs
from exo.models.lock import only_one
from exo.node.identity import node_id
from exo.process import end, give_way

logger = logging.getLogger(__name__)

CANDIDACY_PAUSE = 0.5
"""Seconds between two tries to get the lease."""
ROOM_PAUSE = 2.0
"""Seconds between two tries to write to a disk that was full."""
MENDING_PATIENCE = 10.0
"""Seconds that a damaged log waits for NATS, which may mend it."""
GOODBYE_PATIENCE = 0.5
"""Seconds at the end to give the lease back in."""


async def run_master(settings: Settings) -> None:
    """Run until the process is told to stop. Raises Fatal where it cannot go on."""
    with only_one(settings.home, "master"):
        store = await LogStore.open(settings.log_file)
        try:
            await _run(settings, store, node_id(settings.home))
        finally:
            await store.close()


async def _run(settings: Settings, store: LogStore, own_id: NodeId) -> None:
    began = time.monotonic()
    damage, state = None, State()
    try:
        state = await load_checked(store)
        logger.info("the log holds %d events (read in %.2f s)", state.position, time.monotonic() - began)
    except LogDamaged as error:
        damage = error
        logger.error("the event log is damaged at position %d; NATS may have what was there", damage.position)
    bus = await _connected(settings, damage)
    try:
        await _work(bus, store, own_id, await mended(bus, store, damage) if damage else state, settings.queue_per_model)
    finally:
        await bus.close()


async def _connected(settings: Settings, damage: LogDamaged | None) -> Bus:
    """A connection; with a damage to mend it is not waited for without end."""
    try:
        async with asyncio.timeout(MENDING_PATIENCE if damage else None):
            return await connect(settings.nats_url, settings.cluster, "master")
    except TimeoutError:
        if damage is None:
            raise
        raise damage from None


async def _work(bus: Bus, store: LogStore, own_id: NodeId, state: State, queue_most: int) -> None:
    master = Master(bus, store, own_id, state, queue_most)
    try:
        await master.run()
    finally:
        await master.stop()


class Master:
    """A candidate that follows, and leads when the lease is its own."""

    def __init__(
        self, bus: Bus, store: LogStore, own_id: NodeId, state: State, queue_most: int = QUEUE_PER_MODEL
    ) -> None:
        """`queue_most`: how many generations may wait for one model."""
        self._bus = bus
        self._store = store
        self._own_id = own_id
        self._state = state
        self._queue_most = queue_most
        self._lease = Lease(bus, own_id)
        self._leader: Leader | None = None
        self._is_full = False
        self._signs = Signs()

    @property
    def state(self) -> State:
        """State as of the last event in this master's log."""
        return self._leader.state if self._leader else self._state

    async def run(self) -> None:
        """Follow and lead in turn, without end."""
        await subscribe_gauges(self._bus, self._signs.of_node)
        await subscribe_api_beats(self._bus, self._signs.of_api)
        await answer_queries(self._bus, lambda: self.state, self._outcome)
        store = self._store
        await answer_history(
            self._bus, lambda: store.position, partial(events_page, store), partial(rows_answer, store)
        )
        while True:
            give_way()
            try:
                await self._follow_until_elected()
                await self._lead()
            except DiskFull as error:
                await self._wait_for_room(error)
            except (Fenced, Retryable) as error:
                logger.warning("%s: %s", "leading no longer" if self._leader else "following pauses", error)
                await asyncio.sleep(CANDIDACY_PAUSE)

    async def stop(self) -> None:
        """Leave the log in order and the lease to the next."""
        if self._leader is not None:
            self._state = self._leader.state
            with suppress(TimeoutError):  # NATS may be stopping too; then the lease runs out by itself
                async with asyncio.timeout(GOODBYE_PATIENCE):
                    await self._lease.release()
        with suppress(Fatal, DiskFull):
            await self._store.write_snapshot(self._state)

    async def _wait_for_room(self, error: DiskFull) -> None:
        """Let another master lead, if there is one, and say once what is wrong."""
        if not self._is_full:
            logger.error("%s; until then this master decides nothing", error)
        self._is_full = True
        await self._lease.release()
        await asyncio.sleep(ROOM_PAUSE)

    async def _lead(self) -> None:
        self._state = await reconcile(self._bus, self._store, self._state)
        if self._is_full:
            logger.info("there is room for the log again")
        self._is_full = False
        self._leader = Leader(
            self._bus, self._store, self._lease, self._own_id, self._state, self._signs, self._queue_most
        )
        try:
            await self._leader.lead()
        finally:
            self._state = self._leader.state

    async def _follow_until_elected(self) -> None:
        self._leader = None
        following = asyncio.create_task(self._follow())
        try:
            while not await self._lease.acquire():
                give_way()
                if following.done():
                    await following
                await asyncio.sleep(CANDIDACY_PAUSE)
        finally:
            await end(following)

    async def _follow(self) -> None:
        self._state = await caught_up(self._store, self._state)
        checked = 0
        async with aclosing(follow(self._bus, self._state.position)) as batches:
            async for batch in batches:
                if checked != self._bus.connections:
                    checked = self._bus.connections
                    await self._check_history()
                self._state = await catch_up(self._bus, self._store, self._state, batch[0].position - 1)
                await self._store.append(batch)
                for recorded in batch:
                    self._state = fold(self._state, recorded)

    async def _check_history(self) -> None:
        """Raises Fatal where the stream, which may be another than before, holds another history than this log."""
        first, last = await bounds(self._bus)
        if first <= self._store.position <= last:
            await check(self._bus, self._store, first, self._store.position)

    async def _outcome(self, message_id: MessageId) -> list[Recorded]:
        return await self._store.caused_by(message_id)
