"""Models by the names that people type, and the folders that they are kept in."""

import re
from collections.abc import Iterable

from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard, short_name
from exo.errors import Rejected

MODEL_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?(?:/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?)?")
"""`name` or `owner/name`: the hub's own rule, and safe as a folder name."""


def resolve(name: str, cards: Iterable[ModelCard]) -> ModelCard | None:
    """The card whose full id, else short name, is `name` without regard to case; None where there is none.

    Raises Rejected with the candidates' ids when the short name fits several models.
    """
    known = {card.model_id: card for card in cards}
    found = resolve_id(name, known)
    return None if found is None else known[found]


def resolve_id(name: str, model_ids: Iterable[ModelId]) -> ModelId | None:
    """As `resolve`, of ids."""
    wanted, known = name.strip().casefold(), list(dict.fromkeys(model_ids))
    for key in (str, short_name):
        found = [model_id for model_id in known if key(model_id).casefold() == wanted]
        exact = [model_id for model_id in found if name in (model_id, short_name(model_id))]
        if len(found) == 1 or len(exact) == 1:
            return (exact or found)[0]
        if found:
            candidates = ", ".join(sorted(found))
            raise Rejected(
                f"{name!r} fits several models: say which of {candidates}", code="ambiguous_model", param="model"
            )
    return None


def checked_id(text: str) -> ModelId:
    """`text` as a model id. Raises Rejected where it could not be a folder's name: dots only, other characters."""
    if not MODEL_ID.fullmatch(text) or "--" in text or len(text) > 200:
        raise Rejected(
            f"{text!r} is no model id: write `name` or `owner/name` of letters, digits, `.`, `_` and `-` (not `--`)",
            param="model",
        )
    return ModelId(text)


def folder_name(model_id: ModelId) -> str:
    """The folder that holds the model: `owner--name`. Raises Rejected for an id that could leave its parent folder."""
    return checked_id(model_id).replace("/", "--")


def id_from_folder(name: str) -> ModelId:
    """The model id that a folder's name stands for: the inverse of `folder_name`, else the name as it is."""
    return ModelId(name.replace("--", "/", 1))
