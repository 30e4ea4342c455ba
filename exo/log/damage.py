"""Where a log's file is damaged, and what to do about it."""

from pathlib import Path

from exo.errors import Fatal
from exo.log.connections import Malformed
from exo.log.reading import PAGE, LogReader


class LogDamaged(Fatal):
    """The log has no usable event at `position`, and up to there it is sound as far as it was looked at."""

    def __init__(self, path: Path, position: int, why: str) -> None:
        super().__init__(
            f"the event log {path} is damaged at position {position}: {why}. Put a sound copy of the file in its "
            f"place, such as another node's, and remove {path.name}-wal beside it: what came after the copy is taken "
            "from the stream EVENTS"
        )
        self.position = position


async def located(store: LogReader, error: Malformed) -> Fatal:
    """The error to raise for a file that SQLite finds damaged: as far as its events can be read, it says so."""
    position = await _readable(store)
    try:
        await store.refresh()
    except Fatal:
        return LogDamaged(store.path, position + 1, f"from there on the file cannot be read ({error.cause})")
    if position < store.position:
        return LogDamaged(store.path, position + 1, f"the row cannot be read ({error.cause})")
    return Fatal(
        f"the event log {store.path} is damaged, but all its events up to position {position} can be read "
        f"({error.cause}). Move the file away, then make a new one of it with `exo log export` and `exo log import`"
    )


async def _readable(store: LogReader) -> int:
    """The position up to which rows can be read."""
    position, limit = 0, PAGE
    while True:
        try:
            rows = await store.rows(position, limit)
        except Fatal:
            if limit == 1:
                return position
            limit = 1
            continue
        if not rows:
            return position
        position = rows[-1].position
