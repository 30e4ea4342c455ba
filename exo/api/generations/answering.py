"""From the payloads of one request to its answer: generations started, watched, and read whole or as a stream."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from litestar.response import Stream

from exo.api.bodies.param_names import AS_IN_CHAT, Names
from exo.api.context import Api
from exo.api.generations import sse
from exo.api.generations.answer import Answer
from exo.api.generations.choices import Choices, Chosen
from exo.api.generations.generation import Generation
from exo.api.generations.generations import Receive
from exo.api.http.errors import failure
from exo.api.known.tasks import choice_tasks
from exo.bus.client import new_id
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece
from exo.domain.messages.requests import Payload
from exo.log_setup import current_task

ANSWERED = "the answer is not wanted any more"

Frames = Callable[[Sequence[Chosen]], bytes]
"""Turns what has come into a part of a response's body."""


async def start(
    api: Api,
    model_id: ModelId,
    requests: Sequence[Payload],
    receive: Receive,
    names: Names = AS_IN_CHAT,
    *,
    in_background: bool = False,
    beside: Callable[[TaskId], Awaitable[None]] | None = None,
) -> Choices:
    """One generation for each payload, all of them left when the client goes; those in the background go on without it.

    `names`: what the endpoint calls the parameters that errors name. `beside` is called with the first one's task, and
    waited for, while the generations start. Whoever gets them reads them by `whole` or
    `streamed`. Raises Rejected where the disk is full, and Retryable where NATS stays away.
    """
    api.check_room()
    tasks = choice_tasks(TaskId(new_id()), len(requests))
    current_task.set(tasks[0])
    opened = [api.generations.open(task_id, model_id, in_background=in_background) for task_id in tasks]
    choices = Choices(opened, names)
    api.generations.leave_on_disconnect(choices.generations, receive)
    try:
        each = zip(choices.generations, requests, strict=True)
        starting = [api.generations.start(generation, request) for generation, request in each]
        await asyncio.gather(*starting, *([beside(choices.task_id)] if beside else ()))
    except BaseException:
        _leave(api, choices.generations)
        raise
    return choices


async def reopened(
    api: Api,
    tasks: Sequence[TaskId],
    model_id: ModelId,
    receive: Receive,
    names: Names = AS_IN_CHAT,
    *,
    in_background: bool = False,
) -> Choices:
    """Generations that were started before, by any API process, from their first chunks on; left as by `start`.

    Raises Rejected where the chunks of one are gone, and Retryable where NATS stays away.
    """
    current_task.set(tasks[0])
    generations: list[Generation] = []
    try:
        for task_id in tasks:
            one = await api.generations.reopen(task_id, model_id, in_background=in_background)
            generations.append(one)
    except BaseException:
        _leave(api, generations)
        raise
    api.generations.leave_on_disconnect(generations, receive)
    return Choices(generations, names)


async def accepted(api: Api, choices: Choices) -> None:
    """Leave generations alone that are to go on in the background, once a master has taken them on.

    Raises GenerationFailed where it has refused.
    """
    try:
        for generation in choices.generations:
            await generation.answered()
            if not generation.is_accepted:
                for chosen in await choices.items():
                    _raise_failure(chosen)
    finally:
        _leave(api, choices.generations)


async def whole(api: Api, choices: Choices) -> list[tuple[Answer, EndPiece]]:
    """All of each answer, and its end. Raises GenerationFailed where one ends in an error: then none is whole."""
    answers = [Answer() for _ in choices.generations]
    try:
        while not choices.is_over:
            for index, item in await choices.items():
                _raise_failure((index, item))
                answers[index].add(item)
    finally:
        _leave(api, choices.generations)
    return [(answer, choices.ends[index]) for index, answer in enumerate(answers)]


async def streamed(api: Api, choices: Choices, frames: Frames, media_type: str = sse.MEDIA_TYPE) -> Stream:
    """The answers as they come, once there is something: text, an end, or a sign of life. Until then an error has a
    status of its own: raises GenerationFailed."""
    try:
        first = await choices.items()
        _raise_failure(first[0])
    except BaseException:
        _leave(api, choices.generations)
        raise
    return sse.event_stream(_body(api, choices, frames, first), media_type)


def _raise_failure(chosen: Chosen) -> None:
    _, item = chosen
    if isinstance(item, EndPiece) and (problem := failure(item)):
        raise problem


async def _body(api: Api, choices: Choices, frames: Frames, first: list[Chosen]) -> AsyncGenerator[bytes]:
    try:
        sent = frames(first)
        while True:
            # There is nothing to send while what the client has is left out.
            if sent:
                yield sent
            if choices.is_over:
                return
            sent = frames(await choices.items())
    finally:
        _leave(api, choices.generations)


def _leave(api: Api, generations: Sequence[Generation]) -> None:
    for generation in generations:
        api.generations.leave(generation, ANSWERED)
