"""Responses that are kept: shown, followed, cancelled, deleted."""

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from litestar import Request, Response, delete, get, post
from litestar.params import QueryParameter
from litestar.response import Stream

from exo.api.bodies.openapi import EVENTS, JSON, operation
from exo.api.context import Api
from exo.api.generations import answering
from exo.api.generations.event_frames import EventFrames
from exo.api.generations.event_ids import HEADER, EventId, EventNumbers, parse_event_id
from exo.api.http.json_response import json_response
from exo.api.openai.responses.bodies import response_of
from exo.api.openai.responses.creating import NAMES
from exo.api.openai.responses.events import ResponseWriter
from exo.api.openai.responses.ids import RESPONSE_PREFIX, task_of
from exo.api.openai.responses.listed import listed, page
from exo.api.openai.responses.records import ResponseRecord, find
from exo.api.openai.responses.shapes import DeletedResponse, InputItems, ResponseBody
from exo.api.openai.responses.stored_progress import progress_of
from exo.bus.chunks import delete_chunks
from exo.bus.inbox import send_command
from exo.bus.requests import delete_request
from exo.domain.limits import CANCELLING
from exo.domain.messages.commands import CancelGeneration
from exo.errors import Rejected

NUMBER_MOST = 10**9
ITEMS_MOST = 100
"""OpenAI's limit."""

Streaming = Annotated[bool | None, QueryParameter(name="stream", description="As a stream of events")]
StartingAfter = Annotated[
    int | None,
    QueryParameter(name="starting_after", ge=0, le=NUMBER_MOST, description="Events after this sequence number"),
]
Limit = Annotated[int, QueryParameter(name="limit", ge=1, le=ITEMS_MOST, description="Items at most")]
Order = Annotated[Literal["asc", "desc"], QueryParameter(name="order", description="asc: as they were given")]
After = Annotated[str | None, QueryParameter(name="after", description="Items after the one with this id")]


@get(
    "/v1/responses/{response_id:str}",
    summary="A response that is kept",
    tags=["OpenAI"],
    operation_class=operation(answer=ResponseBody, media_types=(JSON, EVENTS)),
)
async def show_response(
    request: Request[Any, Any, Any],
    response_id: str,
    api: Api,
    streaming: Streaming = None,
    starting_after: StartingAfter = None,
) -> Response[bytes] | Stream:
    """The response as it is now; with `stream` its events, those that came and those that come."""
    record = await find(api.bus, task_of(response_id))
    if streaming:
        return await _followed(request, api, record, starting_after)
    if starting_after is not None:
        raise Rejected("this is for streams only, and 'stream' is not true", param="starting_after")
    return await _shown(api, record)


@post(
    "/v1/responses/{response_id:str}/cancel",
    status_code=200,
    summary="Stop a response",
    tags=["OpenAI"],
    operation_class=operation(answer=ResponseBody),
)
async def cancel_response(response_id: str, api: Api) -> Response[bytes]:
    """Stop one that runs in the background; the response as it is then."""
    record = await find(api.bus, task_of(response_id))
    if not record.request.background:
        raise Rejected("only responses in the background can be cancelled: close the connection of this one")
    await _stop(api, record, "cancelled over the API")
    await api.replica.wait_for(lambda state: record.task_id not in state.generations, 2 * CANCELLING)
    return await _shown(api, record)


@delete(
    "/v1/responses/{response_id:str}",
    status_code=200,
    summary="Delete a response",
    tags=["OpenAI"],
    operation_class=operation(answer=DeletedResponse),
)
async def delete_response(response_id: str, api: Api) -> Response[bytes]:
    """Forget a response, what was asked for it, and what it gave; stop it where it runs."""
    record = await find(api.bus, task_of(response_id))
    await _stop(api, record, "its response was deleted")
    await delete_request(api.bus, record.task_id)
    await delete_chunks(api.bus, record.task_id)
    deleted: DeletedResponse = {"id": response_id, "object": "response", "deleted": True}
    return _json(deleted)


@get(
    "/v1/responses/{response_id:str}/input_items",
    summary="What was asked",
    tags=["OpenAI"],
    operation_class=operation(answer=InputItems),
)
async def list_input_items(
    response_id: str, api: Api, limit: Limit = 20, order: Order = "desc", after: After = None
) -> Response[bytes]:
    """The items of the request's own input, without those of earlier responses."""
    record = await find(api.bus, task_of(response_id))
    items = listed(record.task_id, record.request.input)
    return _json(page(items if order == "asc" else items[::-1], limit, after))


async def _followed(
    request: Request[Any, Any, Any], api: Api, record: ResponseRecord, starting_after: int | None
) -> Stream:
    seen = EventId(record.task_id, record.created, (-1 if starting_after is None else starting_after,))
    if last := request.headers.get(HEADER):
        seen = parse_event_id(last, RESPONSE_PREFIX)
        if seen.task_id != record.task_id:
            raise Rejected("the event is of another response", param="Last-Event-ID")
    choices = await answering.reopened(
        api, [record.task_id], record.model_id, request.receive, NAMES, in_background=True
    )
    frames = EventFrames(ResponseWriter(record), EventNumbers(RESPONSE_PREFIX, seen))
    return await answering.streamed(api, choices, frames.frames)


async def _shown(api: Api, record: ResponseRecord) -> Response[bytes]:
    return _json(response_of(record, await progress_of(api, record, time.time())))


async def _stop(api: Api, record: ResponseRecord, reason: str) -> None:
    if record.task_id in api.state.generations:
        await send_command(api.bus, api.api_id, CancelGeneration(task_id=record.task_id, reason=reason))


def _json(body: Mapping[str, object]) -> Response[bytes]:
    return json_response(body)
