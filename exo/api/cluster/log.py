"""`/log/...`: the history in this node's event log, as `exo log` shows it. Reads only."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from litestar import Response, get
from litestar.params import QueryParameter
from pydantic_core import to_json
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.cluster.events import POSITION_MOST
from exo.api.context import Api
from exo.api.http.json_response import written_json
from exo.api.log_file import read_log
from exo.domain.messages.events import Entry, Recorded
from exo.domain.state import State
from exo.errors import Rejected
from exo.log import replay
from exo.log.codec import VERSIONS
from exo.log.explain import diff, stats
from exo.log.explain.searching import Filter, find_entity, first_matching, last_matching
from exo.log.explain.story import StoryTold
from exo.log.explain.why import why
from exo.log.moments import EXPECTED, Moment, parse_moment, position_before, position_of
from exo.log.store import LogStore

T = TypeVar("T")

EVENTS_MOST = 1000
"""Events in one answer."""

After = Annotated[
    int | None, QueryParameter(name="after", ge=0, le=POSITION_MOST, description="The first ones after this position")
]
Before = Annotated[
    int | None, QueryParameter(name="before", ge=0, le=POSITION_MOST, description="Only events before this position")
]
Limit = Annotated[int, QueryParameter(name="limit", ge=1, le=EVENTS_MOST, description="How many events at most")]
EventType = Annotated[
    str | None, QueryParameter(name="type", description="Only events of this type, such as NodeJoined")
]
EntityName = Annotated[
    str | None,
    QueryParameter(name="entity", description="Only events that name this; the beginning of an id will do"),
]
Since = Annotated[
    str | None, QueryParameter(name="since", description="The first ones from then on: a position, a time, or 10m")
]


class EventsPage(TypedDict):
    """Some events, oldest first; where the log ends; after which to go on, null where there is no more for now."""

    events: list[Recorded]
    position: int
    next_after: int | None


EventShown = TypedDict("EventShown", {"position": int, "entry": Entry, "with": list[int]})
"""An event, and the positions of those that had the same cause."""


@get("/log/events", summary="Events of the past", tags=["Log"], operation_class=operation(answer=EventsPage))
async def list_events(
    api: Api,
    after: After = None,
    before: Before = None,
    limit: Limit = 100,
    event_type: EventType = None,
    entity: EntityName = None,
    since: Since = None,
) -> Response[bytes]:
    """The last events, or with `after` or `since` the first ones from there on; oldest first.

    `next_after` is where to go on; null where there is no more for now.
    """
    if event_type is not None and event_type not in VERSIONS:
        known = ", ".join(sorted(VERSIONS))
        raise Rejected(f"type: there is no event '{event_type}'; there are: {known}", param="type")
    begin = _moment(since, "since")

    async def work(store: LogStore) -> bytes:
        types = frozenset([event_type] if event_type else [])
        wanted = Filter(types=types)
        if entity is not None:
            wanted = Filter(frozenset([await find_entity(store, entity, store.position)]), types)
        low = max(after or 0, 0 if begin is None else await position_before(store, begin))
        high = store.position if before is None else min(store.position, before - 1)
        if after is None and begin is None:
            return _listed(await last_matching(store, wanted, limit, low, high), store.position, None)
        found = await first_matching(store, wanted, limit, low, high)
        following = found[-1].position if len(found) == limit and found[-1].position < high else None
        return _listed(found, store.position, following)

    return await answer_from_log(api, work)


@get("/log/events/{position:str}", summary="One event", tags=["Log"], operation_class=operation(answer=EventShown))
async def show_event(position: str, api: Api) -> Response[bytes]:
    """An event whole, and `with`: the positions of those that had the same cause."""
    number = int(position) if position.isascii() and position.isdecimal() and len(position) < 16 else 0
    if number < 1:
        raise Rejected(f"position: '{position[:40]}' is no position: they are 1, 2, 3 and on", param="position")

    async def work(store: LogStore) -> bytes:
        found = await store.read(number - 1, 1)
        if not found or found[0].position != number:
            reason = f"there is no event at position {number}; the log ends at {store.position}"
            raise Rejected(reason, code="not_found", param="position")
        cause_id = found[0].entry.cause_id
        siblings = await store.caused_by(cause_id) if cause_id else []
        others = [one.position for one in siblings if one.position != number]
        shown: EventShown = {"position": number, "entry": found[0].entry, "with": others}
        return to_json(shown)

    return await answer_from_log(api, work)


@get("/log/state", summary="State at a moment of the past", tags=["Log"], operation_class=operation(answer=State))
async def show_state(api: Api, to: str | None = None) -> Response[bytes]:
    """State as it was, byte for byte what `/state` showed then."""
    moment = _moment(to, "to")

    async def work(store: LogStore) -> bytes:
        state = await replay.load_state(store, await _position(store, moment, "to"))
        return state.model_dump_json().encode()

    return await answer_from_log(api, work)


@get(
    "/log/diff",
    summary="What changed between two moments",
    tags=["Log"],
    operation_class=operation(answer=diff.DiffTold),
)
async def show_diff(api: Api, a: str | None = None, b: str | None = None) -> Response[bytes]:
    """What was added, removed and changed in State from `a` to `b`, each a position or a time; `b` absent: now."""
    if a is None:
        raise Rejected(f"a: it is missing; expected is {EXPECTED}", param="a")
    first, second = _moment(a, "a"), _moment(b, "b")

    async def work(store: LogStore) -> bytes:
        before, after = await _position(store, first, "a"), await _position(store, second, "b")
        return to_json((await diff.diff_between(store, before, after)).plain())

    return await answer_from_log(api, work)


@get(
    "/log/why/{entity:path}",
    summary="How something came to be as it is",
    tags=["Log"],
    operation_class=operation(answer=StoryTold),
)
async def show_why(entity: str, api: Api, at: str | None = None) -> Response[bytes]:
    """The chain of causes of a node, instance, runner, generation, model or command, oldest first."""
    moment = _moment(at, "at")

    async def work(store: LogStore) -> bytes:
        story = await why(store, entity.strip("/"), await _position(store, moment, "at"))
        return to_json(story.plain())

    return await answer_from_log(api, work)


@get("/log/stats", summary="How much the log holds", tags=["Log"], operation_class=operation(answer=stats.StatsTold))
async def show_stats(api: Api) -> Response[bytes]:
    """Events by type and over time, room on the disk, the longest gaps, masters and snapshots."""

    async def work(store: LogStore) -> bytes:
        return to_json((await stats.collect(store)).plain())

    return await answer_from_log(api, work)


async def answer_from_log(api: Api, work: Callable[[LogStore], Awaitable[bytes]]) -> Response[bytes]:
    """What `work` makes of this node's log, as JSON. Raises Retryable where there is none."""
    body = await read_log(api.settings.log_file, work)
    return written_json(body)


def _moment(text: str | None, name: str) -> Moment | None:
    try:
        return None if text is None else parse_moment(text, datetime.now(UTC))
    except ValueError as error:
        raise Rejected(f"{name}: {error}", param=name) from error


async def _position(store: LogStore, moment: Moment | None, name: str) -> int:
    try:
        return await position_of(store, moment)
    except Rejected as error:
        raise Rejected(error.reason, code=error.code, param=name) from error


def _listed(events: list[Recorded], end: int, following: int | None) -> bytes:
    page: EventsPage = {"events": events, "position": end, "next_after": following}
    return to_json(page)
