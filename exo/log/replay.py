"""State at any point of the log, by folding it."""

from collections.abc import Callable

from exo.domain.fold import fold_event
from exo.domain.shape import schema_digest
from exo.domain.state import State
from exo.log import codec
from exo.log.reading import LogReader
from exo.log.snapshots import state_digest

__all__ = ["load_state", "schema_digest", "state_digest"]


async def load_state(
    store: LogReader,
    upto: int | None = None,
    *,
    use_snapshot: bool = True,
    since: State | None = None,
    on_progress: Callable[[int, int], None] = lambda _position, _end: None,
) -> State:
    """State after the event at `upto` (None: the last), from the newest usable snapshot on, or from the first event.

    Both give the same, byte for byte, and so does going on from `since`, an earlier State of the same log, which is
    done where no snapshot is nearer. `on_progress` gets the position reached and the last one, after each page.
    Raises Fatal where an event cannot be read, and OutOfOrder where one is missing.
    """
    end = store.position if upto is None else upto
    state = await store.latest_snapshot(end) if use_snapshot else None
    state = max(state or State(), since or State(), key=lambda one: one.position)
    while rows := await store.bodies(state.position, end):
        for position, time, event in codec.timed(rows):
            state = fold_event(state, position, time, event)
        on_progress(state.position, end)
    return state
