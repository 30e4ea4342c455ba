"""Checks a log against itself: nothing is missing or changed, and everything derived from it follows from it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from exo.domain.fold import fold
from exo.domain.invariants import violations
from exo.domain.messages.events import Recorded
from exo.domain.shape import schema_digest
from exo.domain.state import State
from exo.errors import Fatal
from exo.log import codec, derived
from exo.log.codec import StoredEvent, Undecodable
from exo.log.connections import Malformed
from exo.log.derived import Expected, Problem
from exo.log.reading import LogReader
from exo.log.snapshots import StoredSnapshot, is_whole, state_digest


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check found."""

    checked: int
    """Events that were looked at."""
    position: int
    """Of the last of them."""
    digest: str
    """`state_digest` after the last event that could be folded."""
    problems: tuple[Problem, ...]


async def verify(
    store: LogReader, on_progress: Callable[[int, int], None] = lambda _position, _end: None
) -> Verification:
    """Re-reads the whole log and says everything that is wrong with it, each with its exact position.

    Looked for: gaps, rows that were changed, rows that give no event, times that run backwards, states that break an
    invariant, snapshots that the events do not lead to, and rows of the inbox and of `generations` that disagree.
    `on_progress` gets the position reached and the last one. Works while a master appends. Raises Fatal where the
    file is so damaged that not even its positions can be read.
    """
    async with derived.expecting(store) as expected:
        check = _Check()
        await _take_snapshots(store, check)
        differences = None
        while differences is None:
            end = await store.refresh()
            while check.position < end and await _check_page(store, check, expected):
                on_progress(check.position, end)
            # None: something was appended meanwhile, and what is derived is ahead of what was checked.
            differences = [] if check.cut else await _derived_differences(check, expected)
        return check.result(differences)


async def _take_snapshots(store: LogReader, check: "_Check") -> None:
    try:
        check.snapshots = {row.position: row for row in await store.snapshots()}
    except Malformed as error:
        check.found(store.position, f"the snapshots cannot be read ({error.cause})")


async def _derived_differences(check: "_Check", expected: Expected) -> list[Problem] | None:
    try:
        return await expected.differences(check.position, generations=check.folding)
    except Malformed as error:
        return [Problem(check.position, f"the inbox and the table of generations cannot be compared ({error.cause})")]


async def _check_page(store: LogReader, check: "_Check", expected: Expected) -> bool:
    try:
        rows = await store.rows(check.position)
    except Fatal:
        return await _check_one_by_one(store, check, expected)
    await expected.add(check.page(rows))
    return bool(rows)


async def _check_one_by_one(store: LogReader, check: "_Check", expected: Expected) -> bool:
    """Of a page that SQLite cannot give in one piece, what it can."""
    try:
        positions = await store.positions(check.position)
    except Malformed:
        return await _check_next(store, check, expected)
    for position in positions:
        try:
            await expected.add(check.page(await store.rows(position - 1, 1)))
        except Fatal as error:
            check.unreadable(position, str(error))
    return bool(positions)


async def _check_next(store: LogReader, check: "_Check", expected: Expected) -> bool:
    """Where not even a page's positions can be read, one row, or the end of what can."""
    try:
        rows = await store.rows(check.position, 1)
    except Malformed as error:
        check.cut_off(error.cause)
        return False
    await expected.add(check.page(rows))
    return bool(rows)


@dataclass(slots=True)
class _Check:
    """How far a check has come."""

    snapshots: dict[int, StoredSnapshot] = field(default_factory=dict[int, StoredSnapshot])
    state: State = field(default_factory=State)
    folding: bool = True
    """Until an event is missing or unusable: what follows cannot be folded."""
    position: int = 0
    chain: str | None = codec.GENESIS
    """Of the last row; None where that row is missing."""
    time: float = 0.0
    checked: int = 0
    cut: bool = False
    """Whether the rest of the file cannot be read."""
    broken: list[str] = field(default_factory=list[str])
    """Invariants that the state of now breaks."""
    problems: list[Problem] = field(default_factory=list[Problem])

    def page(self, rows: Sequence[StoredEvent]) -> list[Recorded]:
        """Rows that follow on those before, or should. Returns the events in them."""
        decoded = self._decoded(rows)
        for row, recorded in zip(rows, decoded, strict=True):
            self._place(row.position)
            self._link(row)
            if recorded is not None:
                self._fold(recorded)
            self._compare_snapshot()
        return [recorded for recorded in decoded if recorded is not None]

    def unreadable(self, position: int, reason: str) -> None:
        """A row that SQLite does not give."""
        self._place(position)
        self.found(position, reason)
        self.chain, self.folding = None, False

    def cut_off(self, reason: object) -> None:
        """The file cannot be read any further."""
        self.found(self.position + 1, f"from here on the file cannot be read ({reason})")
        self.chain, self.folding, self.cut = None, False, True

    def result(self, differences: Sequence[Problem]) -> Verification:
        """All that was found, in the order of positions."""
        for position in sorted(self.snapshots):
            if position > self.position:
                self.found(position, "there is a snapshot, and no event: the end of the log is missing")
        problems = sorted([*self.problems, *differences], key=lambda problem: problem.position)
        return Verification(self.checked, self.position, state_digest(self.state), tuple(problems))

    def found(self, position: int, text: str) -> None:
        """One more problem."""
        self.problems.append(Problem(position, text))

    def _decoded(self, rows: Sequence[StoredEvent]) -> list[Recorded | None]:
        try:
            return [*codec.decode(rows)]
        except Undecodable:
            return [self._decoded_one(row) for row in rows]

    def _decoded_one(self, row: StoredEvent) -> Recorded | None:
        try:
            return codec.decode([row])[0]
        except Undecodable as error:
            self.found(row.position, error.why)
            self.folding = False
            return None

    def _place(self, position: int) -> None:
        missing = position - self.position - 1
        if missing > 0:
            events = "the event is" if missing == 1 else f"the events up to position {position - 1} are"
            self.found(self.position + 1, f"{events} missing")
            self.chain, self.folding = None, False
        self.position = position
        self.checked += 1

    def _link(self, row: StoredEvent) -> None:
        # After a gap the chain cannot be checked; the gap has been told.
        if self.chain is not None and not codec.follows(row, self.chain):
            self.found(row.position, "the row was changed, or the one before it: its chain does not follow")
        self.chain = row.chain

    def _fold(self, recorded: Recorded) -> None:
        if recorded.entry.recorded_at < self.time:
            self.found(recorded.position, "its time is before that of the event before it")
        self.time = recorded.entry.recorded_at
        if not self.folding:
            return
        try:
            self.state = fold(self.state, recorded)
        except Exception as error:
            # The fold is total: whatever it raises is a fault, and finding faults is what this is for.
            self.found(recorded.position, f"it cannot be folded: {error!r}")
            self.folding = False
            return
        broken = violations(self.state)
        for text in broken:
            if text not in self.broken:
                self.found(recorded.position, f"from here on {text}")
        self.broken = broken

    def _compare_snapshot(self) -> None:
        row = self.snapshots.get(self.position)
        if row is None or row.schema != schema_digest():
            return
        if not is_whole(row):
            self.found(self.position, "the snapshot is damaged")
        elif self.folding and row.digest != state_digest(self.state):
            self.found(self.position, "the snapshot differs from the State that the events lead to")
