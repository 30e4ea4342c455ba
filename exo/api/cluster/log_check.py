"""`GET /log/verify`: the whole log checked, with signs of how far it is."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from litestar import get
from litestar.response import Stream
from pydantic_core import to_json

from exo.api.bodies.openapi import EVENTS, operation
from exo.api.context import Api
from exo.api.generations import sse
from exo.api.http.errors import problem_of
from exo.api.log_file import read_log
from exo.errors import ExoError
from exo.log.store import LogStore
from exo.log.verify import Verification, verify

PROGRESS = 0.5
"""Seconds between two signs of how far it is."""


@get("/log/verify", summary="Check the log", tags=["Log"], operation_class=operation(media_types=(EVENTS,)))
async def verify_log(api: Api) -> Stream:
    """The log checked as by `exo log verify`, which takes a while, as server-sent events.

    First `progress` events; then one `result`, or one `error`.
    """
    await read_log(api.settings.log_file, _nothing)
    return sse.event_stream(_frames(api))


async def _frames(api: Api) -> AsyncGenerator[bytes]:
    reached = [0, 0]

    def on_progress(position: int, end: int) -> None:
        reached[:] = position, end

    async def work(store: LogStore) -> Verification:
        return await verify(store, on_progress)

    async def result() -> AsyncGenerator[bytes]:
        try:
            found = await read_log(api.settings.log_file, work)
        except ExoError as error:
            problem = problem_of(error)
            yield _event("error", {"message": problem.message if problem else str(error)})
        else:
            yield _event("result", _plain(found))

    async with aclosing(api.readers.read(result(), PROGRESS)) as frames:
        async for frame in frames:
            yield _event("progress", {"position": reached[0], "end": reached[1]}) if frame is None else frame
            if frame is not None:
                return


async def _nothing(_store: LogStore) -> None:
    await asyncio.sleep(0)


def _event(name: str, value: object) -> bytes:
    return sse.event(name, to_json(value))


def _plain(found: Verification) -> dict[str, object]:
    return {
        "checked": found.checked,
        "position": found.position,
        "digest": found.digest,
        "problems": [{"position": problem.position, "text": problem.text} for problem in found.problems],
    }
