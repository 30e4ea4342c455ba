"""Streams that a client can come back to: a new one, or the rest of the one that it names."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.response import Stream

from exo.api.bodies.param_names import AS_IN_CHAT, Names
from exo.api.context import Api
from exo.api.generations import answering
from exo.api.generations.choices import Choices
from exo.api.generations.event_frames import EventFrames, EventWriter
from exo.api.generations.event_ids import HEADER, EventId, EventNumbers, before_all, parse_event_id
from exo.api.generations.generations import GONE, Receive
from exo.api.known.tasks import choice_tasks
from exo.bus.requests import get_request
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.requests import GenerationRequest
from exo.errors import Rejected


@dataclass(frozen=True, slots=True)
class AskedStream:
    """What a client wants as a stream."""

    model_id: ModelId
    requests: Sequence[GenerationRequest]
    """One for each choice."""
    prefix: str
    """What the ids of the endpoint's answers begin with."""
    writer: Callable[[TaskId, int], EventWriter]
    """Makes the writer of an answer, by its task and when it was asked for, seconds since the epoch."""
    created: int
    """Now."""
    in_background: bool = False
    """Whether it goes on without its client."""
    names: Names = field(default_factory=lambda: AS_IN_CHAT)
    """What the endpoint calls the parameters that errors name."""
    beside: Callable[[TaskId], Awaitable[None]] | None = None
    """What is done with a new one's task while it starts."""


async def stream(api: Api, request: Request[Any, Any, Any], asked: AskedStream) -> Stream:
    """The response: the whole stream, or what comes after the event that the client names as `Last-Event-ID`.

    Raises what went wrong before there was anything to send.
    """
    if last := request.headers.get(HEADER):
        seen = parse_event_id(last, asked.prefix)
        choices = await _reopened(api, asked, seen, request.receive)
    else:
        choices = await answering.start(
            api,
            asked.model_id,
            asked.requests,
            request.receive,
            asked.names,
            in_background=asked.in_background,
            beside=asked.beside,
        )
        seen = before_all(choices.task_id, asked.created, len(asked.requests))
    frames = EventFrames(asked.writer(seen.task_id, seen.created), EventNumbers(asked.prefix, seen))
    return await answering.streamed(api, choices, frames.frames)


async def _reopened(api: Api, asked: AskedStream, seen: EventId, receive: Receive) -> Choices:
    tasks = choice_tasks(seen.task_id, len(seen.numbers))
    stored = await asyncio.gather(*[get_request(api.bus, task_id) for task_id in tasks])
    if None in stored:
        raise Rejected(GONE, code="generation_expired", param="Last-Event-ID")
    if stored != list(asked.requests):
        reason = "the event is of another request: send the same body again to go on with its answer"
        raise Rejected(reason, param="Last-Event-ID")
    return await answering.reopened(api, tasks, asked.model_id, receive, asked.names, in_background=asked.in_background)
