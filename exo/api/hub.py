"""The hub, as this process asks it: in threads, a few questions at a time, each given up with who asked."""

import asyncio
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard
from exo.errors import Rejected
from exo.models.hub_card import fetch_card
from exo.models.hub_exit import UNREACHABLE_CODE
from exo.models.hub_search import HubModel, search_hub
from exo.models.progress import IsCancelled

T = TypeVar("T")

AT_ONCE = 4
"""Questions; each is a process of 60 MB for as long as the hub takes."""


class Hub:
    """What the hub knows of models."""

    def __init__(self, *, offline: bool) -> None:
        """`offline`: nobody is to be asked."""
        self._offline = offline
        self._room = asyncio.Semaphore(AT_ONCE)

    async def card(self, model_id: ModelId) -> ModelCard:
        """The card of a model. Raises Rejected where the hub cannot be asked, does not have it, or it cannot be run."""
        return await self._asked(lambda scratch, cancelled: fetch_card(model_id, scratch, cancelled=cancelled))

    async def search(self, query: str, limit: int) -> list[HubModel]:
        """At most `limit` models whose names have the words. Raises Rejected where the hub cannot be asked."""
        return await self._asked(lambda scratch, cancelled: search_hub(query, limit, scratch, cancelled=cancelled))

    async def _asked(self, ask: Callable[[Path, IsCancelled], T]) -> T:
        if self._offline:
            raise Rejected("EXO_OFFLINE is set where this API runs: the hub is not asked", code=UNREACHABLE_CODE)
        gone = threading.Event()

        def work() -> T:
            with tempfile.TemporaryDirectory(prefix="exo-hub-") as scratch:
                return ask(Path(scratch), gone.is_set)

        async with self._room:
            try:
                return await asyncio.to_thread(work)
            finally:
                gone.set()
