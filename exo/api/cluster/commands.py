"""Commands over HTTP: sent, and waited for where the client asks for it."""

import asyncio
import re
import time
from collections.abc import Container
from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import QueryParameter

from exo.api.bodies.openapi import Outcome, Pending, command, operation
from exo.api.context import Api
from exo.api.http.access import owns
from exo.api.http.errors import CommandRefused
from exo.api.http.json_response import json_response
from exo.api.known.tasks import live_choices, task_named
from exo.bus.inbox import send_command
from exo.bus.queries import ask_outcome
from exo.domain.ids import KeyName, MessageId, TaskId
from exo.domain.messages.commands import CancelGeneration, Command
from exo.domain.messages.events import CommandRejected, GenerationQueued, Recorded
from exo.domain.state import State
from exo.errors import Rejected, Retryable

ASK = 5.0
"""Seconds that a master has to answer."""
PAUSE = 0.02
_PARAMS = {"no_engine": "engine"}
"""The parameter of a command that a code is about, where it is another than of a request."""
_COMMAND_ID = re.compile(r"[0-9a-f]{32}")

Wait = Annotated[
    float | None, QueryParameter(name="wait", ge=0, le=600, description="Seconds to wait for the outcome; absent: none")
]


@get(
    "/v1/commands/{command_id:str}",
    summary="What became of a command",
    tags=["Cluster"],
    operation_class=operation(answer=Outcome),
)
async def show_command(command_id: str, api: Api) -> Response[bytes]:
    """`pending`, `done` or `rejected`, with the events that it led to."""
    if not _COMMAND_ID.fullmatch(command_id):
        raise Rejected(f"'{command_id}' is no command's id: they have 32 hexadecimal digits", code="command_not_found")
    return _outcome(MessageId(command_id), await ask_outcome(api.bus, MessageId(command_id), ASK))


@post(
    "/v1/cancel/{name:str}",
    status_code=202,
    summary="Stop a generation",
    tags=["Cluster"],
    operation_class=command(),
)
async def cancel_generation(name: str, api: Api, wait: Wait = None) -> Response[bytes]:
    """Stop a generation by its task's id, by that of its answer, with all choices of it, or by the command that started
    it. Others' need the scope admin."""
    task_id = await _task_of(api, name)
    choices = live_choices(api.state, task_id)
    if not all(owns(KeyName(generation.key)) for generation in choices):
        raise Rejected("this generation is another key's: stopping it needs the scope admin", code="insufficient_scope")
    first, *others = [
        CancelGeneration(task_id=one, reason="cancelled over the API")
        for one in [generation.task_id for generation in choices] or [task_id]
    ]
    # At once: the stream that reads them has all cancelled as soon as one is.
    sending = asyncio.gather(*(send_command(api.bus, api.api_id, other) for other in others))
    answer, _ = await asyncio.gather(send(api, first, wait), sending)
    return answer


async def _task_of(api: Api, name: str) -> TaskId:
    """The task that a name stands for; the name itself where State knows no better, since it may be behind."""
    task_id = task_named(name)
    if task_id in api.state.generations or not _COMMAND_ID.fullmatch(name):
        return task_id
    events = [one.entry.event for one in await ask_outcome(api.bus, MessageId(name), ASK)]
    return next((event.task_id for event in events if isinstance(event, GenerationQueued)), task_id)


async def send(api: Api, command: Command, wait: float | None) -> Response[bytes]:
    """Send a command. 202 with its id; with `wait`, seconds, its outcome. Raises Rejected where it was refused."""
    if not wait:
        command_id = await send_command(api.bus, api.api_id, command)
        return _accepted(command_id)
    command_id, events = await decide(api, command, wait)
    return _outcome(command_id, events) if events else _accepted(command_id)


async def decide(api: Api, command: Command, wait: float) -> tuple[MessageId, list[Recorded]]:
    """A command's id, and what it led to; nothing where nothing was decided within `wait`, seconds.

    Raises Rejected where it was refused.
    """
    deadline = time.monotonic() + wait
    seen: set[MessageId | None] = set()

    def listen(_state: State, recorded: Recorded | None) -> None:
        if recorded is not None:
            seen.add(recorded.entry.cause_id)

    end = api.replica.listen(listen)
    try:
        command_id = await send_command(api.bus, api.api_id, command, patience=wait)
        decided = await api.replica.wait_for(lambda _state: command_id in seen, deadline - time.monotonic())
    finally:
        end()
    events = await _events_of(api, command_id, deadline) if decided else []
    for recorded in events:
        if isinstance(recorded.entry.event, CommandRejected):
            code = recorded.entry.event.code
            raise CommandRefused(recorded.entry.event.reason, code=code, param=_PARAMS.get(code))
    return command_id, events


async def carry_out(api: Api, command: Command, wait: float, done: Container[str] = ()) -> None:
    """Have a command decided within `wait`, seconds; a refusal with one of the codes `done` says that it is so already.

    Raises Rejected where it was refused otherwise, and Retryable where nothing was decided in time.
    """
    try:
        _, events = await decide(api, command, wait)
    except CommandRefused as refusal:
        if refusal.code not in done:
            raise
    else:
        if not events:
            raise Retryable(f"no master has decided on it within {wait:.0f} s")


async def _events_of(api: Api, command_id: MessageId, deadline: float) -> list[Recorded]:
    """The events of a command that is decided: a master has them a moment after the stream."""
    while True:
        events = await ask_outcome(api.bus, command_id, ASK)
        if events or time.monotonic() > deadline:
            return events
        await asyncio.sleep(PAUSE)


def _accepted(command_id: MessageId) -> Response[bytes]:
    location = f"/v1/commands/{command_id}"
    body: Pending = {"command_id": command_id, "status": "pending"}
    return json_response(body, status_code=202, headers={"location": location})


def _outcome(command_id: MessageId, events: list[Recorded]) -> Response[bytes]:
    rejected = next((one.entry.event for one in events if isinstance(one.entry.event, CommandRejected)), None)
    body: dict[str, Any] = {
        "id": command_id,
        "status": "rejected" if rejected else "done" if events else "pending",
        "events": [recorded.model_dump(mode="json") for recorded in events],
    }
    if rejected:
        body |= {"code": rejected.code, "reason": rejected.reason}
    return json_response(body, status_code=200)
