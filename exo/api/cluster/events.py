"""`GET /events`: the log, as it grows."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from litestar import get
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from exo.api.bodies.openapi import EVENTS, operation
from exo.api.context import Api
from exo.api.generations import sse

HEARTBEAT = 10.0
"""Seconds of silence before a sign of life."""
POSITION_MOST = 2**53
"""Of a number that JSON's readers keep exact."""

Position = Annotated[
    int | None,
    QueryParameter(
        name="after", ge=0, le=POSITION_MOST, description="Events after this position; absent: only new ones"
    ),
]
LastEventId = Annotated[
    int | None,
    HeaderParameter(name="Last-Event-ID", ge=0, le=POSITION_MOST, description="As `after`, and goes before it"),
]


@get(
    "/events",
    summary="Follow the event log",
    tags=["Cluster"],
    operation_class=operation(media_types=(EVENTS,)),
)
async def follow_events(api: Api, after: Position = None, last_event_id: LastEventId = None) -> Stream:
    """Every event from a position on, then those that come, as server-sent events with the position as their id."""
    position = last_event_id if last_event_id is not None else after
    return sse.event_stream(_frames(api, api.state.position if position is None else position))


async def _frames(api: Api, position: int) -> AsyncGenerator[bytes]:
    yield sse.comment(f"after {position}")
    async with aclosing(api.readers.read(api.feed.after(position), HEARTBEAT)) as batches:
        async for batch in batches:
            if batch is None:
                yield sse.comment("nothing new")
                continue
            yield b"".join([sse.recorded(recorded.position, recorded.model_dump_json()) for recorded in batch])
