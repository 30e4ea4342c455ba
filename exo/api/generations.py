"""All open generations of this API process: started, fed, watched, and cancelled when nobody reads them any more."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

from exo.api.generation import Generation
from exo.api.loading import Loading
from exo.api.metrics.meters import Meters
from exo.api.progress import waiting_for
from exo.bus.chunks import read_chunks, subscribe_chunks
from exo.bus.client import Bus, new_id
from exo.bus.inbox import send_command
from exo.bus.replica import Replica
from exo.bus.requests import put_request
from exo.domain.ids import ApiId, MessageId, ModelId, TaskId
from exo.domain.messages.chunks import ChunkGenerated
from exo.domain.messages.commands import CancelGeneration, StartGeneration
from exo.domain.messages.events import CommandRejected, GenerationFinished, GenerationQueued, Recorded
from exo.domain.messages.requests import CHARACTERS_PER_TOKEN, GenerationRequest
from exo.domain.state import State
from exo.errors import ExoError, Retryable

logger = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between two looks at all open generations."""
REJECTIONS_KEPT = 256
"""Refusals remembered, because one may be seen before the id of its command is known here."""
AHEAD_MOST = 64 * 1024
"""Characters of a prompt that is sent ahead of its command without waiting until it is stored."""
LOGGED_MOST = 256 * 1024
"""Characters of a prompt that go into the log where prompts are logged: a message of NATS holds 8 MB."""
LAST_WORDS = 0.7
"""Seconds at the process' end to have open generations cancelled."""

Receive = Callable[[], Awaitable[Mapping[str, object]]]
"""ASGI's, as far as it matters here."""


class Generations:
    """The open generations, by their ids. One subscription, one listener and one clock serve all of them."""

    def __init__(self, bus: Bus, api_id: ApiId, log_prompts: bool, loading: Loading, meters: Meters) -> None:
        self._bus = bus
        self._api_id = api_id
        self._log_prompts = log_prompts
        self._loading = loading
        self._meters = meters
        self._open: dict[TaskId, Generation] = {}
        self._commands: dict[MessageId, Generation] = {}
        self._rejections: OrderedDict[MessageId, CommandRejected] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancels: set[asyncio.Task[None]] = set()
        self._fetching: set[TaskId] = set()
        self._state = State()
        self._closing = False

    def __len__(self) -> int:
        return len(self._open)

    async def begin(self, replica: Replica) -> None:
        """Take chunks and events, for as long as the connection lives."""
        await subscribe_chunks(self._bus, self._api_id, self._received)
        self._state = replica.state
        replica.listen(self._listen)

    async def watch_time(self) -> None:
        """Give the generations their deadlines and signs of life, without end."""
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            for generation in list(self._open.values()):
                if generation.tick(now) and generation.task_id not in self._fetching:
                    self._fetching.add(generation.task_id)
                    self._spawn(self._fetch(generation))

    def open(self, model_id: ModelId) -> Generation:
        """A new generation, not started yet. Whoever opens it calls `leave` in the end. Raises Retryable at the end."""
        if self._closing:
            raise Retryable("this API process is shutting down")
        task_id = TaskId(new_id())

        def describe() -> str:
            return waiting_for(self._state, model_id, task_id, self._loading)

        now = time.monotonic()
        generation = Generation(task_id, model_id, now, describe, self._meters.pace(model_id, now))
        self._open[task_id] = generation
        return generation

    async def start(self, generation: Generation, request: GenerationRequest) -> None:
        """Leave the payload for the runners, and ask the master. Raises Retryable where NATS stays away.

        Only a large payload is waited for: a small one is sent first and stored in microseconds, long before the
        master's decision can reach a runner, and waiting for it would add a round trip to the first token.
        """
        characters = request.characters
        storing = asyncio.ensure_future(put_request(self._bus, generation.task_id, request))
        storing.add_done_callback(_seen)
        if characters > AHEAD_MOST:
            await storing
        command = self._command(generation, request, characters)
        if generation.is_over:
            return
        generation.asked(time.monotonic())
        command_id, _ = await asyncio.gather(send_command(self._bus, self._api_id, command), storing)
        if rejection := self._rejections.pop(command_id, None):
            self._reject(generation, rejection)
        elif generation.task_id in self._open:
            generation.command_id = command_id
            self._commands[command_id] = generation

    def _command(self, generation: Generation, request: GenerationRequest, characters: int) -> StartGeneration:
        return StartGeneration(
            task_id=generation.task_id,
            model_id=generation.model_id,
            estimated_tokens=characters // CHARACTERS_PER_TOKEN,
            key="anonymous",
            reply_to=self._api_id,
            prompt=_prompt_text(request)[:LOGGED_MOST] if self._log_prompts else None,
        )

    def leave(self, generation: Generation, reason: str) -> None:
        """Nobody reads it any more: have it stopped, unless it is over. May be called twice."""
        if self._open.pop(generation.task_id, None) is None:
            return
        if generation.command_id is not None:
            self._commands.pop(generation.command_id, None)
        if generation.is_asked and not generation.ended_elsewhere:
            self._spawn(self._cancel(generation.task_id, reason), self._cancels)
        generation.end("cancelled", reason)

    def leave_on_disconnect(self, generations: Sequence[Generation], receive: Receive) -> None:
        """Watch the client's connection, whose body has been read, and leave all of these when it ends."""
        self._spawn(self._watch_client(generations, receive))

    async def close(self) -> None:
        """End all open generations, here and in the cluster, within LAST_WORDS."""
        self._closing = True
        for generation in list(self._open.values()):
            generation.end("shutting_down", "this API process is shutting down")
            self.leave(generation, "the API process that asked is shutting down")
        if self._cancels and self._bus.is_connected:
            await asyncio.wait(self._cancels, timeout=LAST_WORDS)
        tasks = self._tasks | self._cancels
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _received(self, chunk: ChunkGenerated) -> None:
        generation = self._open.get(chunk.task_id)
        if generation is not None:
            generation.receive(chunk, time.monotonic())

    def _listen(self, state: State, recorded: Recorded | None) -> None:
        self._state = state
        if recorded is None:
            self._resync(state)
            return
        match recorded.entry.event:
            case GenerationQueued() as event:
                if generation := self._open.get(event.task_id):
                    generation.is_accepted = True
            case GenerationFinished() as event:
                if generation := self._open.get(event.task_id):
                    generation.finished(event, time.monotonic())
            case CommandRejected() as event if recorded.entry.cause_id is not None:
                self._rejected(recorded.entry.cause_id, event)
            case _:
                pass

    def _resync(self, state: State) -> None:
        """State came anew, and events may have been missed: what has ended meanwhile is told apart by State alone."""
        ended = {one.task_id: one for one in state.ended}
        for task_id, generation in self._open.items():
            if task_id in state.generations:
                generation.is_accepted = True
            elif one := ended.get(task_id):
                event = GenerationFinished(task_id=task_id, finish_reason=one.finish_reason, error=one.error)
                generation.finished(event, time.monotonic())
            elif generation.is_accepted:
                # One that State no longer knows has ended somehow: the stream of chunks may still tell how.
                event = GenerationFinished(task_id=task_id, finish_reason="stop")
                generation.finished(event, time.monotonic())

    def _rejected(self, command_id: MessageId, event: CommandRejected) -> None:
        if generation := self._commands.get(command_id):
            self._reject(generation, event)
        elif event.command == "StartGeneration":
            self._rejections[command_id] = event
            while len(self._rejections) > REJECTIONS_KEPT:
                self._rejections.popitem(last=False)

    def _reject(self, generation: Generation, event: CommandRejected) -> None:
        generation.ended_elsewhere = True
        generation.end(event.code, event.reason)

    async def _fetch(self, generation: Generation) -> None:
        try:
            chunks = await read_chunks(self._bus, self._api_id, generation.task_id, generation.next_index)
            generation.fetched(chunks, time.monotonic())
        except Retryable as error:
            logger.debug("reading what is missing of %s: %s", generation.task_id, error)
        finally:
            self._fetching.discard(generation.task_id)

    async def _watch_client(self, generations: Sequence[Generation], receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        for generation in generations:
            self.leave(generation, "the client disconnected")

    async def _cancel(self, task_id: TaskId, reason: str) -> None:
        try:
            await send_command(self._bus, self._api_id, CancelGeneration(task_id=task_id, reason=reason))
        except ExoError as error:
            logger.warning("the generation %s could not be cancelled: %s", task_id, error)

    def _spawn(self, work: Coroutine[object, object, None], among: set[asyncio.Task[None]] | None = None) -> None:
        group = self._tasks if among is None else among
        task = asyncio.create_task(work)
        group.add(task)
        task.add_done_callback(group.discard)


def _prompt_text(request: GenerationRequest) -> str:
    """What a model is to continue, as JSON."""
    return request.model_dump_json(include={"messages" if request.prompt is None else "prompt"})


def _seen(storing: "asyncio.Future[None]") -> None:
    """Whoever waits for it is told; where the command failed first, nobody waits any more."""
    if not storing.cancelled():
        storing.exception()
