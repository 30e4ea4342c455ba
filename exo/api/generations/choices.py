"""Several generations of one request, read as one stream of items that say whose they are."""

import asyncio
from collections.abc import Sequence

from exo.api.bodies.param_names import AS_IN_CHAT, Names, named
from exo.api.generations.generation import Generation, Item, Note
from exo.api.http.errors import failure
from exo.domain.ids import TaskId
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
        self._arrived = asyncio.Event()
        for generation in generations:
            generation.arrived = self._arrived

    @property
    def task_id(self) -> TaskId:
        """Names the whole: the first generation's."""
        return self.generations[0].task_id

    def loading(self) -> float:
        """Seconds that went by until the model was loaded; 0 where it was."""
        return self.generations[0].load_seconds

    @property
    def is_over(self) -> bool:
        """Whether the last end has been read, or one that is a failure: then nothing more comes."""
        return self._failed or len(self.ends) == len(self.generations)

    async def items(self) -> list[Chosen]:
        """What has come since the last call; waits while there is nothing. After a failure nothing else is there."""
        while not (read := self._taken()):
            self._arrived.clear()
            await self._arrived.wait()
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

    def _taken(self) -> list[Chosen]:
        """What is there. One speaks for all while nothing comes: the first that is not over."""
        still_open = (index for index in range(len(self.generations)) if index not in self.ends)
        speaker = next(still_open, None)
        return [
            (index, item)
            for index, generation in enumerate(self.generations)
            for item in generation.taken()
            if index == speaker or not isinstance(item, Note)
        ]


def usage_together(usages: Sequence[Usage], choices_per_prompt: int) -> Usage:
    """Of all choices, those of one prompt side by side: each prompt counts once, as its first choice found it."""
    first = usages[::choices_per_prompt]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in first),
        cached_tokens=sum(usage.cached_tokens for usage in first),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )
