"""What the hub has of models that exo can run, by words."""

from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from exo.errors import Rejected
from exo.models.child import run_child
from exo.models.hub import CHILD, require_success
from exo.models.hub_exit import REFUSED_CODE
from exo.models.json_file import read_object
from exo.models.progress import IsCancelled, never

SECONDS = 20.0
"""That a search may take."""


class HubModel(BaseModel):
    """A model on the hub, as a search shows it."""

    id: str
    downloads: int
    """In the last thirty days."""
    likes: int
    last_modified: str | None
    """ISO 8601."""
    tags: list[str]


_MODELS = TypeAdapter(list[HubModel])


def search_hub(
    query: str, limit: int, scratch: Path, *, endpoint: str | None = None, cancelled: IsCancelled = never
) -> list[HubModel]:
    """At most `limit` models for text in safetensors whose names have the words, those most fetched first; of any name
    where there are no words. `scratch` is an empty folder. Raises Rejected where the hub cannot be asked; Cancelled."""
    output = scratch / "found.json"
    command = [*CHILD, "search", endpoint or "", query, str(limit), str(output)]
    ended = run_child(command, stall_seconds=SECONDS, cancelled=cancelled, measure=lambda: 0)
    require_success(ended, scratch)
    try:
        return _MODELS.validate_python(read_object(output).get("models"))
    except ValidationError as error:
        raise Rejected(f"the hub gave no answer that is of use ({error})", code=REFUSED_CODE) from error
