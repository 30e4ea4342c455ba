"""State for a master that starts: what it will decide on has been checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exo.domain.fold import fold_event
from exo.domain.state import State
from exo.log import codec
from exo.log.codec import StoredEvent, Undecodable
from exo.log.connections import Malformed
from exo.log.damage import LogDamaged, located
from exo.log.reading import LogReader


async def load_checked(store: LogReader) -> State:
    """State after the last event, with the chain checked from the newest usable snapshot to the end.

    The row at the snapshot's position is checked too, so that the last row always is. Raises LogDamaged, a Fatal, for
    the first row that is missing or was changed, and Undecodable, a Fatal, for one that a newer version wrote.
    """
    try:
        state = await store.latest_snapshot() or State()
        before = max(0, state.position - 1)
        check = _Check(store.path, state, before, await _chain_at(store, before))
        while rows := await store.rows(check.position):
            check.add(rows)
    except Malformed as error:
        raise await located(store, error) from error
    return check.state


async def _chain_at(store: LogReader, position: int) -> str:
    if position == 0:
        return codec.GENESIS
    rows = await store.rows(position - 1, 1)
    if not rows or rows[0].position != position:
        raise LogDamaged(store.path, position, "the event is missing")
    return rows[0].chain


@dataclass(slots=True)
class _Check:
    """How far it has come."""

    path: Path
    state: State
    position: int
    """Of the last row that was checked; at the beginning one before that of `state`, or 0."""
    chain: str

    def add(self, rows: Sequence[StoredEvent]) -> None:
        """The next rows. Raises LogDamaged or Undecodable."""
        for row in rows:
            if row.position != self.position + 1:
                raise LogDamaged(self.path, self.position + 1, "the event is missing")
            if not codec.follows(row, self.chain):
                raise LogDamaged(self.path, row.position, _what_is_wrong(row))
            self.position, self.chain = row.position, row.chain
        # Rows that follow were written so: where they give no event, it is not the file that is at fault.
        bodies = ((row.position, row.recorded_at, row.type, row.version, row.body) for row in rows)
        for position, time, event in codec.timed(bodies):
            if position > self.state.position:
                self.state = fold_event(self.state, position, time, event)


def _what_is_wrong(row: StoredEvent) -> str:
    try:
        codec.decode([row])
    except Undecodable as error:
        return f"the row {error.why}"
    return "the row was changed, or the one before it: its chain does not follow"
