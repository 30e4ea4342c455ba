"""The card of a model on the hub, before anything but its small files has been fetched."""

import fnmatch
from pathlib import Path

from exo.domain.ids import ModelId
from exo.domain.model_card import HubSource, ModelCard
from exo.errors import Rejected
from exo.models.abilities import FILES, read_abilities
from exo.models.config import card_of
from exo.models.folder import CONFIG_FILE
from exo.models.hub import WEIGHTS, fetch_files, fetch_listing, needed_files
from exo.models.json_file import read_object
from exo.models.progress import IsCancelled, never

PARAM = "model_id"


def fetch_card(
    model_id: ModelId, scratch: Path, *, endpoint: str | None = None, cancelled: IsCancelled = never
) -> ModelCard:
    """The card that a repository's configuration and the sizes of its weight files give.

    Files have headers beside the weights, less than a thousandth: a downloaded model's own figures replace these.
    `scratch` is an empty folder. Raises Rejected, saying what to do, where the hub cannot be asked or does not have it,
    and for what is no model that exo can load; Cancelled.
    """
    source = HubSource(repository=model_id)
    listing = fetch_listing(source, scratch, endpoint=endpoint, cancelled=cancelled)
    weights = fnmatch.filter(needed_files(listing.files), WEIGHTS)
    missing = CONFIG_FILE if CONFIG_FILE not in listing.files else "" if weights else "safetensors weights"
    if missing:
        raise Rejected(f"{listing.repository} has no {missing}: choose another conversion of the model", param=PARAM)
    found = HubSource(repository=listing.repository)
    small = [name for name in FILES if name in listing.files]
    fetch_files(found, listing.sha, small, scratch, endpoint=endpoint, cancelled=cancelled)
    try:
        card = card_of(
            read_object(scratch / CONFIG_FILE),
            f"{CONFIG_FILE} of {listing.repository}",
            ModelId(listing.repository),
            sum(listing.files[name] for name in weights),
            sources=(found,),
        )
    except Rejected as error:
        raise Rejected(error.reason, code=error.code, param=PARAM) from error
    return card.replaced({"license": listing.license, "abilities": read_abilities(scratch)})
