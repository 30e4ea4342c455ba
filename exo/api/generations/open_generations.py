"""The generations that are read in this API process, and what comes for them: chunks, events, refusals."""

import time
from collections import OrderedDict

from exo.api.generations.generation import Generation
from exo.api.generations.load_time import load_seconds
from exo.domain.ids import MessageId, TaskId
from exo.domain.messages.chunks import ChunkGenerated
from exo.domain.messages.events import (
    CommandRejected,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    Recorded,
)
from exo.domain.state import State

REJECTIONS_KEPT = 256
"""Refusals remembered, because one may be seen before the id of its command is known here."""


class OpenGenerations:
    """Each as often as it is read: by the client that asked, and by those that came back to it."""

    def __init__(self) -> None:
        self._readers: dict[TaskId, list[Generation]] = {}
        self._commands: dict[MessageId, Generation] = {}
        self._rejections: OrderedDict[MessageId, CommandRejected] = OrderedDict()

    def all(self) -> list[Generation]:
        """Every one that is read."""
        return [generation for readers in self._readers.values() for generation in readers]

    def add(self, generation: Generation) -> None:
        """One more is read."""
        self._readers.setdefault(generation.task_id, []).append(generation)

    def remove(self, generation: Generation) -> bool:
        """One is read no more. Whether it was."""
        readers = self._readers.get(generation.task_id, [])
        if generation not in readers:
            return False
        readers.remove(generation)
        if not readers:
            del self._readers[generation.task_id]
        if generation.command_id is not None:
            self._commands.pop(generation.command_id, None)
        return True

    def is_read(self, task_id: TaskId) -> bool:
        """Whether anybody reads a generation."""
        return task_id in self._readers

    def sent(self, generation: Generation, command_id: MessageId) -> None:
        """The command that asks for a generation has this id."""
        if rejection := self._rejections.pop(command_id, None):
            _reject(generation, rejection)
        elif generation in self._readers.get(generation.task_id, ()):
            generation.command_id = command_id
            self._commands[command_id] = generation

    def receive(self, chunk: ChunkGenerated) -> None:
        """One more chunk of one of them."""
        for generation in self._readers.get(chunk.task_id, ()):
            generation.receive(chunk, time.monotonic())

    def listen(self, state: State, recorded: Recorded | None) -> None:
        """A listener of the replica."""
        if recorded is None:
            # Events may have been missed: what has ended meanwhile is told apart by State alone.
            for generation in self.all():
                settle(generation, state)
            return
        match recorded.entry.event:
            case GenerationQueued() as event:
                for generation in self._readers.get(event.task_id, ()):
                    generation.accept()
            case GenerationDispatched() as event:
                for generation in self._readers.get(event.task_id, ()):
                    generation.load_seconds = load_seconds(state, event.task_id)
            case GenerationFinished() as event:
                for generation in self._readers.get(event.task_id, ()):
                    generation.finished(event, time.monotonic())
            case CommandRejected() as event if recorded.entry.cause_id is not None:
                self._rejected(recorded.entry.cause_id, event)
            case _:
                pass

    def _rejected(self, command_id: MessageId, event: CommandRejected) -> None:
        if generation := self._commands.get(command_id):
            _reject(generation, event)
        elif event.command == "StartGeneration":
            self._rejections[command_id] = event
            while len(self._rejections) > REJECTIONS_KEPT:
                self._rejections.popitem(last=False)


def settle(generation: Generation, state: State) -> None:
    """Tell a generation what State knows of it, without the events that led there."""
    task_id = generation.task_id
    if task_id in state.generations:
        generation.accept()
        generation.load_seconds = load_seconds(state, task_id)
    elif one := next((one for one in state.ended if one.task_id == task_id), None):
        event = GenerationFinished(task_id=task_id, finish_reason=one.finish_reason, error=one.error)
        generation.finished(event, time.monotonic())
    elif generation.is_accepted:
        # One that State no longer knows has ended somehow: the stream of chunks may still tell how.
        generation.finished(GenerationFinished(task_id=task_id, finish_reason="stop"), time.monotonic())


def _reject(generation: Generation, event: CommandRejected) -> None:
    generation.ended_elsewhere = True
    generation.end(event.code, event.reason, event.retry_after)
