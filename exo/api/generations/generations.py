"""All generations that this API process reads: started or reopened, watched, cancelled when nobody reads them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

from exo.api.generations.generation import Generation
from exo.api.generations.open_generations import OpenGenerations, settle
from exo.api.http.access import client, payer
from exo.api.loading import Loading
from exo.api.metrics.meters import Meters
from exo.api.metrics.pace import Pace
from exo.api.progress import waiting_for
from exo.bus.beats import publish_api_beat
from exo.bus.chunks import Unfollow, follow_chunks, read_chunks, subscribe_chunks
from exo.bus.client import Bus
from exo.bus.inbox import send_command
from exo.bus.replica import Replica
from exo.bus.requests import put_request
from exo.domain.ids import ApiId, ModelId, TaskId
from exo.domain.messages.beat import ApiBeat
from exo.domain.messages.commands import CancelGeneration, StartGeneration
from exo.domain.messages.requests import CHARACTERS_PER_TOKEN, Payload
from exo.domain.state import State
from exo.errors import ExoError, Rejected, Retryable

logger = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between two looks at all open generations."""
BEAT_PAUSE = 2.0
"""Seconds between two signs of life to the master; it takes ten that do not come for this process' end."""
AHEAD_MOST = 64 * 1024
"""Characters of a prompt that is sent ahead of its command without waiting until it is stored."""
LOGGED_MOST = 256 * 1024
"""Characters of a prompt that go into the log where prompts are logged: a message of NATS holds 8 MB."""
LAST_WORDS = 0.7
"""Seconds at the process' end to have open generations cancelled."""
STATE_LATE = 1.0
"""Seconds that this process' State may be behind what another process answered to a client."""
GONE = "what this generation gave is gone: it is kept for an hour, as long as there is room for it. Ask anew"

Receive = Callable[[], Awaitable[Mapping[str, object]]]
"""ASGI's, as far as it matters here."""


class Generations:
    """The open generations, by their ids. One subscription, one listener and one clock serve all of them."""

    def __init__(
        self, bus: Bus, api_id: ApiId, replica: Replica, log_prompts: bool, loading: Loading, meters: Meters
    ) -> None:
        self._bus = bus
        self._replica = replica
        self._api_id = api_id
        self._log_prompts = log_prompts
        self._loading = loading
        self._meters = meters
        self._open = OpenGenerations()
        self._unfollow: dict[Generation, Unfollow] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancels: set[asyncio.Task[None]] = set()
        self._fetching: set[Generation] = set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._open.all())

    async def begin(self) -> None:
        """Take chunks and events, for as long as the connection lives."""
        await subscribe_chunks(self._bus, self._api_id, self._open.receive)
        self._replica.listen(self._open.listen)

    async def watch_time(self) -> None:
        """Give the generations their deadlines and signs of life, without end."""
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            for generation in self._open.all():
                if generation.tick(now) and generation not in self._fetching:
                    self._fetching.add(generation)
                    self._spawn(self._fetch(generation))

    async def show_life(self) -> None:
        """Tell the master without end that what is read here has a reader."""
        while True:
            await self._beat()
            await asyncio.sleep(BEAT_PAUSE)

    async def _beat(self) -> None:
        reopened = tuple({generation.task_id for generation in self._unfollow})
        await publish_api_beat(self._bus, ApiBeat(api_id=self._api_id, reading=reopened))

    def open(self, task_id: TaskId, model_id: ModelId, *, in_background: bool = False) -> Generation:
        """A new generation, not started yet. Whoever opens it calls `leave` in the end. Raises Retryable at the end."""
        pace = self._meters.pace(model_id, time.monotonic())
        generation = self._new(task_id, model_id, in_background, pace)
        self._add(generation)
        return generation

    async def reopen(self, task_id: TaskId, model_id: ModelId, *, in_background: bool) -> Generation:
        """A generation that was started before, by any API process, from its first chunk on.

        Whoever reopens it calls `leave` in the end. Raises Rejected where its chunks are gone, and Retryable.
        """
        generation = self._new(task_id, model_id, in_background)
        generation.asked(time.monotonic())
        generation.accept()
        unfollow = await follow_chunks(self._bus, task_id, lambda chunk: generation.receive(chunk, time.monotonic()))
        try:
            await self._catch_up(generation)
        except BaseException:
            await unfollow()
            raise
        self._unfollow[generation] = unfollow
        await self._beat()
        return generation

    async def start(self, generation: Generation, request: Payload) -> None:
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
        self._open.sent(generation, command_id)

    def _command(self, generation: Generation, request: Payload, characters: int) -> StartGeneration:
        return StartGeneration(
            task_id=generation.task_id,
            model_id=generation.model_id,
            gives=request.gives,
            estimated_tokens=characters // CHARACTERS_PER_TOKEN,
            key=payer(),
            client=client(),
            reply_to=self._api_id,
            prompt=request.shown()[:LOGGED_MOST] if self._log_prompts else None,
            needs_reader=not generation.in_background,
        )

    def leave(self, generation: Generation, reason: str) -> None:
        """One reads it no more: have it stopped, unless it is over, in the background, or read by others. May be called
        twice."""
        if not self._open.remove(generation):
            return
        if unfollow := self._unfollow.pop(generation, None):
            self._spawn(unfollow())
        goes_on = generation.in_background or self._open.is_read(generation.task_id)
        if generation.is_asked and not generation.ended_elsewhere and not goes_on:
            self._spawn(self._cancel(generation.task_id, reason), self._cancels)
        generation.end("cancelled", reason)

    def leave_on_disconnect(self, generations: Sequence[Generation], receive: Receive) -> None:
        """Watch the client's connection, whose body has been read, and leave all of these when it ends."""
        self._spawn(self._watch_client(generations, receive))

    async def close(self) -> None:
        """End all open generations, here and in the cluster, within LAST_WORDS.

        Those in the background go on: their streams just break off, and can be read on elsewhere.
        """
        self._closing = True
        for generation in self._open.all():
            if not generation.in_background:
                generation.end("shutting_down", "this API process is shutting down")
                self.leave(generation, "the API process that asked is shutting down")
        if self._cancels and self._bus.is_connected:
            await asyncio.wait(self._cancels, timeout=LAST_WORDS)
        tasks = self._tasks | self._cancels
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _new(self, task_id: TaskId, model_id: ModelId, in_background: bool, pace: Pace | None = None) -> Generation:
        def describe() -> str:
            return waiting_for(self._replica.state, model_id, task_id, self._loading)

        return Generation(task_id, model_id, time.monotonic(), describe, pace, in_background=in_background)

    def _add(self, generation: Generation) -> None:
        if self._closing:
            raise Retryable("this API process is shutting down")
        self._open.add(generation)

    async def _catch_up(self, generation: Generation) -> None:
        """Bring a generation that was started before to where it is now."""
        task_id = generation.task_id
        chunks = await read_chunks(self._bus, task_id, 0)
        for chunk in chunks:
            generation.receive(chunk, time.monotonic())
        if generation.next_index == 0 and (chunks or not await self._is_readable(task_id)):
            raise Rejected(GONE, code="generation_expired")
        # From here on events reach it: a failure, any sooner, would have ended it before its chunks.
        self._add(generation)
        settle(generation, self._replica.state)

    async def _is_readable(self, task_id: TaskId) -> bool:
        """Whether a generation without chunks is to be read. One that was just asked for may be new to State here."""
        return await self._replica.wait_for(lambda state: _has_begun(state, task_id), STATE_LATE)

    async def _fetch(self, generation: Generation) -> None:
        try:
            chunks = await read_chunks(self._bus, generation.task_id, generation.next_index)
            generation.fetched(chunks, time.monotonic())
        except Retryable as error:
            logger.debug("reading what is missing of %s: %s", generation.task_id, error)
        finally:
            self._fetching.discard(generation)

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


def _has_begun(state: State, task_id: TaskId) -> bool:
    """Whether the first chunk of a generation is to come, or it failed before that."""
    failed = (one.task_id for one in state.ended if one.finish_reason in ("error", "cancelled"))
    return task_id in state.generations or task_id in failed


def _seen(storing: "asyncio.Future[None]") -> None:
    """Whoever waits for it is told; where the command failed first, nobody waits any more."""
    if not storing.cancelled():
        storing.exception()
