"""The models of a worker's node: what it has and can get, and the getting and deleting, in threads of its own."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from immutables import Map

from exo.bus.client import Bus
from exo.bus.inbox import send_report
from exo.bus.replica import Replica
from exo.config import Settings
from exo.domain.ids import ModelId, NodeId
from exo.domain.messages.reports import DownloadSeen, RemovalSeen
from exo.domain.model_card import ModelCard
from exo.domain.node import DamagedModel, Holding
from exo.domain.state import State, is_up, requested_on
from exo.errors import ExoError, Rejected
from exo.models.progress import Cancelled, Progress
from exo.models.scripted import SCRIPTED_CARD
from exo.models.store import Store

logger = logging.getLogger(__name__)

REPORT_PATIENCE = 3600.0
FOLD_PATIENCE = 30.0
"""Seconds to wait for the master to record what was reported."""
MOVED_PAUSE = 0.5
"""Seconds between two looks at whether a model was put there or deleted."""
PROGRESS_PAUSE = 2.0
"""Seconds between two lines about how far a preparation is."""


class Models:
    """`holdings` and `damaged` are as of the last `look`."""

    def __init__(
        self, settings: Settings, bus: Bus, replica: Replica, node_id: NodeId, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when a preparation or a deletion has ended."""
        self._store = Store(settings.models_dir, settings.model_folders, settings.offline)
        self._scripted = "scripted" in settings.engine
        self._bus = bus
        self._replica = replica
        self._node_id = node_id
        self._changed = changed
        self._preparing: dict[ModelId, threading.Event] = {}
        self._deleting: set[ModelId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.holdings: tuple[Holding, ...] = ()
        self.damaged: tuple[DamagedModel, ...] = ()
        self._found: tuple[DamagedModel, ...] | None = None
        self._looked_at = 0
        self._added: Map[ModelId, ModelCard] = Map()
        """The models that were made known, as of the last look."""

    @property
    def ready(self) -> frozenset[ModelId]:
        """Models that are complete on disk."""
        return frozenset(holding.card.model_id for holding in self.holdings if holding.status == "ready")

    @property
    def preparing(self) -> frozenset[ModelId]:
        """Models on their way."""
        return frozenset(self._preparing)

    @property
    def deleting(self) -> frozenset[ModelId]:
        """Models whose deletion goes on, or is not recorded yet."""
        return frozenset(self._deleting)

    async def look(self) -> None:
        """Look at the disk again, and at what was made known."""
        self._looked_at = self._changed_at()
        self._added = self._replica.state.added_models
        if self._scripted:
            self.holdings = (Holding(card=SCRIPTED_CARD, status="ready"),)
        else:
            self.holdings, found = await asyncio.to_thread(self._store.look, tuple(self._added.values()))
            self.damaged = settled(found, found if self._found is None else self._found, self.damaged)
            self._found = found

    async def moved(self, seconds: float) -> None:
        """Wait until a model came into exo's own folder, was deleted from it or made known after the last look, but no
        longer than so many seconds."""
        deadline = time.monotonic() + seconds
        while not self._has_news and time.monotonic() < deadline:  # noqa: ASYNC110  (a disk's time)
            await asyncio.sleep(MOVED_PAUSE)

    @property
    def _has_news(self) -> bool:
        return self._changed_at() != self._looked_at or self._replica.state.added_models is not self._added

    def _changed_at(self) -> int:
        """Of the folder itself, nanoseconds; 0 where it is not there."""
        try:
            return self._store.models_dir.stat().st_mtime_ns
        except OSError:
            return 0

    async def folder(self, model_id: ModelId) -> Path:
        """Where a ready model lies. Raises Rejected where it has gone since."""
        if self._scripted:
            return self._store.models_dir
        folder = await asyncio.to_thread(self._store.path, model_id)
        if folder is None:
            raise Rejected(f"{model_id} is not on the disk any more")
        return folder

    def prepare(self, card: ModelCard) -> None:
        """Begin to bring a model onto the disk; reports say what becomes of it."""
        if card.model_id in self._preparing:
            return
        cancelled = threading.Event()
        self._preparing[card.model_id] = cancelled
        self._begin(self._prepare(card, cancelled))

    def abandon(self, model_id: ModelId) -> None:
        """Stop preparing a model."""
        if cancelled := self._preparing.get(model_id):
            cancelled.set()

    def delete(self, model_id: ModelId) -> None:
        """Begin to delete a model from the disk; a report says what becomes of it."""
        if model_id not in self._deleting:
            self._deleting.add(model_id)
            self._begin(self._delete(model_id))

    async def close(self) -> None:
        """Stop all preparations, and wait until their threads have noticed, and for what is being deleted."""
        for model_id in list(self._preparing):
            self.abandon(model_id)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prepare(self, card: ModelCard, cancelled: threading.Event) -> None:
        report = _Reporter(self._bus, self._node_id, card.model_id)
        await report("started")
        try:
            await asyncio.to_thread(self._store.prepare, card, _Progress(card), cancelled.is_set)
            await self.look()
            await report("finished")
            logger.info("%s is on the disk", card.model_id)
        except Cancelled:
            logger.info("nobody needs %s any more: its preparation was stopped", card.model_id)
            await report("abandoned")
        except (ExoError, OSError) as error:
            logger.error("%s", error)
            await report("failed", str(error))
            # Until the master has failed what waits for the model, a plan would have it prepared once more.
            await self._replica.wait_for(
                lambda state: not _is_awaited(state, self._node_id, card.model_id), FOLD_PATIENCE
            )
        finally:
            del self._preparing[card.model_id]
            self._changed()

    async def _delete(self, model_id: ModelId) -> None:
        try:
            await send_report(self._bus, self._node_id, await self._deleted(model_id), REPORT_PATIENCE)
            # Until the master has recorded that, a plan would have it deleted once more.
            await self._replica.wait_for(lambda state: not _is_to_go(state, self._node_id, model_id), FOLD_PATIENCE)
        finally:
            self._deleting.discard(model_id)
            self._changed()

    async def _deleted(self, model_id: ModelId) -> RemovalSeen:
        try:
            await asyncio.to_thread(self._store.delete, model_id)
        except (ExoError, OSError) as error:
            logger.error("%s", error)
            return RemovalSeen(node_id=self._node_id, model_id=model_id, status="failed", reason=str(error))
        await self.look()
        logger.info("%s was deleted from the disk", model_id)
        left = next((holding for holding in self.holdings if holding.card.model_id == model_id), None)
        return RemovalSeen(node_id=self._node_id, model_id=model_id, status="removed", holding=left)


def settled(
    found: Sequence[DamagedModel], before: Sequence[DamagedModel], told: Sequence[DamagedModel]
) -> tuple[DamagedModel, ...]:
    """The damages of a look that the look before it found too; of a folder that still changes, what was told of it.

    A folder that is being copied is damaged in another way at every look, and each would be an event.
    """
    known = {one.model_id: one for one in told}
    damages = (one if one in before else known.get(one.model_id) for one in found)
    return tuple(one for one in damages if one is not None)


def _is_awaited(state: State, node_id: NodeId, model_id: ModelId) -> bool:
    return model_id in requested_on(state, node_id) or any(
        runner.node_id == node_id and not is_up(runner) and state.instances[runner.instance_id].model_id == model_id
        for runner in state.runners.values()
    )


def _is_to_go(state: State, node_id: NodeId, model_id: ModelId) -> bool:
    node = state.nodes.get(node_id)
    return node is not None and model_id in node.removals


class _Reporter:
    def __init__(self, bus: Bus, node_id: NodeId, model_id: ModelId) -> None:
        self._bus = bus
        self._node_id = node_id
        self._model_id = model_id

    async def __call__(self, status: str, reason: str = "") -> None:
        report = DownloadSeen.model_validate(
            {"node_id": self._node_id, "model_id": self._model_id, "status": status, "reason": reason}
        )
        await send_report(self._bus, self._node_id, report, REPORT_PATIENCE)


class _Progress:
    """Says how far a preparation is, not too often. Called in the preparing thread."""

    def __init__(self, card: ModelCard) -> None:
        self._model_id = card.model_id
        self._said = 0.0
        self._stage = ""

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.stage == self._stage and now - self._said < PROGRESS_PAUSE:
            return
        self._said, self._stage = now, progress.stage
        if progress.total_bytes:
            share = 100 * progress.done_bytes / progress.total_bytes
            size = progress.total_bytes / 1e6
            logger.info("%s: %s, %.0f %% of %.0f MB", self._model_id, progress.stage, share, size)
        elif progress.stage != "waiting":
            logger.info("%s: %s", self._model_id, progress.stage)
