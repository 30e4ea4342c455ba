"""Several generations of one request, read as one stream of items that say whose they are."""

import asyncio
from collections.abc import Sequence

from exo.api.errors import failure
from exo.api.generation import Generation, Item, Note
from exo.api.param_names import AS_IN_CHAT, Names, named
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece
from exo.domain.sampling import Usage

Chosen = tuple[int, Item]
"""The index of a choice, and one more item of it."""


class Choices:
    """The generations of one request, by their indexes, and one reader of all of them."""

    def __init__(self, generations: Sequence[Generation], names: Names = AS_IN_CHAT) -> None:
        """`names`: what the endpoint calls the parameters that errors name."""
        self.generations = generations
        self._names = names
        self.ends: dict[int, EndPiece] = {}
        """By index: those that are over."""
        self._failed = False
        self._reading: dict[asyncio.Task[list[Item]], int] = {}

    @property
    def task_id(self) -> TaskId:
        """Names the whole: the first generation's."""
        return self.generations[0].task_id

    @property
    def model_id(self) -> ModelId:
        """The model that all of them are of."""
        return self.generations[0].model_id

    @property
    def is_over(self) -> bool:
        """Whether the last end has been read, or one that is a failure: then nothing more comes."""
        return self._failed or len(self.ends) == len(self.generations)

    async def items(self) -> list[Chosen]:
        """What has come since the last call; waits while there is nothing. After a failure nothing else is there."""
        read = await self._next()
        chosen: list[Chosen] = []
        for index, item in read:
            if not isinstance(item, EndPiece):
                chosen.append((index, item))
                continue
            end = self.ends[index] = named(item, self._names)
            chosen.append((index, end))
            if failure(end):
                self._failed = True
                break
        return chosen

    def close(self) -> None:
        """Read no more."""
        for task in self._reading:
            task.cancel()

    async def _next(self) -> list[Chosen]:
        if len(self.generations) == 1:
            return [(0, item) for item in await self.generations[0].items()]
        chosen: list[Chosen] = []
        while not chosen:
            chosen = [one for index, items in await self._arrived() for one in self._shown(index, items)]
        return chosen

    async def _arrived(self) -> list[tuple[int, list[Item]]]:
        """What those gave that have something, by index."""
        read = set(self._reading.values()) | self.ends.keys()
        for index, generation in enumerate(self.generations):
            if index not in read:
                self._reading[asyncio.create_task(generation.items())] = index
        done, _ = await asyncio.wait(self._reading, return_when=asyncio.FIRST_COMPLETED)
        return sorted((self._reading.pop(task), task.result()) for task in done)

    def _shown(self, index: int, items: list[Item]) -> list[Chosen]:
        """One speaks for all while nothing comes: the first that is not over."""
        speaker = min(open_index for open_index in range(len(self.generations)) if open_index not in self.ends)
        return [(index, item) for item in items if index == speaker or not isinstance(item, Note)]


def usage_together(usages: Sequence[Usage], choices_per_prompt: int) -> Usage:
    """Of all choices, those of one prompt side by side: each prompt counts once, as its first choice found it."""
    first = usages[::choices_per_prompt]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in first),
        cached_tokens=sum(usage.cached_tokens for usage in first),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )
