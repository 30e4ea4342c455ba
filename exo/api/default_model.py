"""The model that is there without being asked for, and the block that says how to use it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from exo.api.http.exposure import has_good_key
from exo.api.known.models import find_model, known_models
from exo.bus.client import Bus
from exo.bus.inbox import send_command
from exo.bus.replica import Replica
from exo.config import Settings
from exo.domain.ids import ApiId
from exo.domain.messages.commands import PlaceInstance
from exo.domain.messages.events import NodeJoined, NodeLinksChanged, NodeLost, Recorded
from exo.domain.model_card import ModelCard
from exo.domain.state import State, instances_of, is_ready, names_of
from exo.errors import ExoError, Rejected, Retryable
from exo.process import give_way

logger = logging.getLogger(__name__)

READY_PAUSE = 0.1
"""Seconds between two looks at whether a request would be answered, until it would."""


class DefaultModel:
    """Has the default model placed at the start, and when a node joins or is lost; where that failed, again when nodes
    are found to be linked, since what fits none may fit several. What somebody unloads stays so meanwhile."""

    def __init__(
        self, settings: Settings, bus: Bus, api_id: ApiId, reasons: Callable[[], Awaitable[list[str]]]
    ) -> None:
        """`reasons`: what is in the way of an answer now, as /ready has it."""
        self._settings = settings
        self._bus = bus
        self._api_id = api_id
        self._reasons = reasons
        self._wanted = asyncio.Event()
        self._is_asked = False
        self._was_there = False
        """Since the start, or since a node joined or was lost: if it is gone now, somebody wanted that."""
        self._said_missing = False

    async def run(self, replica: Replica) -> None:
        """Look after it without end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_placed(replica))
            tasks.create_task(self._say_ready(replica))

    async def _keep_placed(self, replica: Replica) -> None:
        self._listen(replica.state, None)
        end = replica.listen(self._listen)
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self._place(replica.state)
                give_way()
        finally:
            end()

    def _listen(self, state: State, recorded: Recorded | None) -> None:
        event = recorded.entry.event if recorded is not None else None
        if event is None or isinstance(event, NodeJoined | NodeLost):
            self._is_asked = self._was_there = False
        elif isinstance(event, NodeLinksChanged):
            self._is_asked = False
        card = self._card(state)
        if card is None:
            self._say_missing(state)
            return
        if instances_of(state, card.model_id):
            self._was_there = True
        elif not self._is_asked and not self._was_there:
            self._is_asked = True
            self._wanted.set()

    async def _place(self, state: State) -> None:
        card = self._card(state)
        if card is None or instances_of(state, card.model_id):
            return
        logger.info("placing the default model, %s", card.model_id)
        try:
            await send_command(self._bus, self._api_id, PlaceInstance(model_id=card.model_id, only_if_absent=True))
        except ExoError as error:
            self._is_asked = False
            logger.warning("the default model could not be placed: %s", error)

    def _card(self, state: State) -> ModelCard | None:
        if not self._settings.default_model:
            return None
        try:
            return find_model(state, self._settings.default_model)
        except (Rejected, Retryable):
            return None

    def _say_missing(self, state: State) -> None:
        if self._said_missing or not state.nodes or not self._settings.default_model:
            return
        self._said_missing = True
        there = [card.model_id for card, status in known_models(state).values() if status != "obtainable"]
        logger.warning(
            "the default model, %s, is on no node's disk and cannot be fetched%s; on disk: %s",
            self._settings.default_model,
            " (EXO_OFFLINE is set)" if self._settings.offline else "",
            ", ".join(there) or "none",
        )

    async def _say_ready(self, replica: Replica) -> None:
        """Once a request would be answered: State alone may still tell of a runner that was there before a restart."""
        while True:
            card = self._card(replica.state)
            if card is not None and _has_ready(replica.state, card) and not await self._reasons():
                needs_key = has_good_key(replica.state)
                machines = sorted(names_of(replica.state.nodes.values()).values())
                print(ready_block(self._settings, card, machines, needs_key=needs_key), flush=True)
                return
            await asyncio.sleep(READY_PAUSE)


def _has_ready(state: State, card: ModelCard) -> bool:
    return any(is_ready(state, instance) for instance in instances_of(state, card.model_id))


def ready_block(settings: Settings, card: ModelCard, machines: Sequence[str], *, needs_key: bool) -> str:
    """What to do now, to be copied; and which machines the cluster has, where they are several."""
    address = settings.api_url
    key = '-H "authorization: Bearer $EXO_API_KEY" ' if needs_key else ""
    together = f", on the nodes {', '.join(machines)}" if len(machines) > 1 else ""
    return (
        f"\nexo is ready: {address}/v1 answers as OpenAI does, with {card.model_id}{together}\n\n"
        f"curl {address}/v1/chat/completions -H 'content-type: application/json' {key}"
        f'-d \'{{"model": "{card.short_name}", "temperature": 0, '
        f'"messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}\'\n'
    )
