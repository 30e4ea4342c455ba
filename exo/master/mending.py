"""Mends the end of a damaged log with what the stream EVENTS still holds."""

import logging

from exo.bus import events
from exo.bus.client import Bus
from exo.domain.state import State
from exo.log.damage import LogDamaged
from exo.log.starting import load_checked
from exo.log.store import LogStore
from exo.master.reconcile import check

logger = logging.getLogger(__name__)


async def mended(bus: Bus, store: LogStore, damage: LogDamaged) -> State:
    """The State before the damage, after everything from there on was dropped; a leader, or a follower, copies it back.

    Raises the damage where the stream does not hold all of that and the event before it, and Fatal where that event is
    another one than the log's.
    """
    first, last = await events.bounds(bus)
    before = damage.position - 1
    if not first <= max(1, before) <= store.position <= last:
        raise damage
    if before:
        await check(bus, store, first, before)
    logger.warning("%s. It does hold them: taking the events from there on from the stream", damage)
    await store.drop_tail(damage.position)
    return await load_checked(store)
