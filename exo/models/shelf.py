"""Folders that hold models: which model is in which, found again only when a folder has changed."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from exo.domain.ids import ModelId
from exo.domain.messages.upcast import first_line
from exo.domain.model_card import ModelCard
from exo.domain.node import DamagedModel
from exo.errors import Rejected
from exo.models.abilities import read_abilities
from exo.models.folder import CONFIG_FILE, card_from_folder, what_is_missing
from exo.models.gguf.conversion import CARD_FILE, PARTIAL
from exo.models.names import id_from_folder

log = logging.getLogger(__name__)

REASON_MOST = 500
"""Characters of what is wrong with a folder: file names and tensor names stand in it, and it goes into the log."""

Stamp = tuple[tuple[str, int, int], ...]
Known = TypeVar("Known")
Found = dict[ModelId, tuple[Known, Path]]
"""What is known of each model, and its folder."""


class Shelf:
    """Looks into folders and remembers what it saw; a folder is read anew when a file in it has changed."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[Stamp, ModelCard | DamagedModel]] = {}

    def look(self, places: Sequence[Path]) -> tuple[Found[ModelCard], Found[DamagedModel]]:
        """The models in `places`, each of which is a model folder or holds some; the first of one id wins.

        The complete ones, and the folders that should hold one and do not: of these the log says once why.
        """
        models: Found[ModelCard] = {}
        damaged: Found[DamagedModel] = {}
        for folder, known in self._all(places):
            if isinstance(known, ModelCard):
                models.setdefault(known.model_id, (known, folder))
            else:
                damaged.setdefault(known.model_id, (known, folder))
        return models, damaged

    def _all(self, places: Sequence[Path]) -> Iterator[tuple[Path, ModelCard | DamagedModel]]:
        for folder in _model_folders(places):
            try:
                stamp = _stamp(folder)
            except OSError:  # deleted while we looked
                continue
            known = self._seen.get(folder)
            if known is None or known[0] != stamp:
                known = (stamp, _read(folder))
                self._seen[folder] = known
            yield folder, known[1]


def _model_folders(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if _holds_model(place):
            yield place
        elif place.is_dir():
            yield from sorted(child for child in place.iterdir() if _is_model_folder(child))


def _is_model_folder(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name.endswith(PARTIAL)
    return not hidden and _holds_model(folder)


def _holds_model(folder: Path) -> bool:
    """Whether it should hold one: weights without a configuration are a model that has lost it."""
    return (folder / CONFIG_FILE).is_file() or any(folder.glob("model*.safetensors"))


def _stamp(folder: Path) -> Stamp:
    stats = [(file.name, file.stat()) for file in folder.iterdir() if file.is_file()]
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))


def _read(folder: Path) -> ModelCard | DamagedModel:
    try:
        reason = what_is_missing(folder)
        if reason is None:
            return read_card(folder)
    except ValidationError as error:
        reason = f"{folder / CARD_FILE} is no model card ({first_line(error)}): delete it, or fetch the model again"
    except (Rejected, OSError) as error:
        reason = str(error)
    log.warning("%s is left out: %s", folder, reason)
    return DamagedModel(model_id=id_from_folder(folder.name), reason=reason[:REASON_MOST])


def read_card(folder: Path) -> ModelCard:
    """The card in `exo.json`, else one from config.json and the weights, named for the folder. Its abilities are always
    those that the files tell of.

    Raises Rejected or pydantic's ValidationError for files that are no such thing.
    """
    card_file = folder / CARD_FILE
    if card_file.is_file():
        card = ModelCard.model_validate_json(card_file.read_bytes())
    else:
        card = card_from_folder(folder, id_from_folder(folder.name))
    return card.replaced({"abilities": read_abilities(folder)})


def write_card(folder: Path, card: ModelCard) -> None:
    """Keeps the card beside the weights."""
    (folder / CARD_FILE).write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
