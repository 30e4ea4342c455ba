"""`GET /models/search`: models by words in their names, those that the cluster knows before those of the hub."""

from typing import Annotated, Literal

from litestar import Response, get
from litestar.params import QueryParameter
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import Availability, known_models
from exo.domain.state import State
from exo.errors import Rejected
from exo.models.hub_search import HubModel

LIMIT_MOST = 100
QUERY_MOST = 200

Words = Annotated[str, QueryParameter(name="query", max_length=QUERY_MOST, description="Words of the name; none: any")]
Limit = Annotated[int, QueryParameter(name="limit", ge=1, le=LIMIT_MOST, description="How many models at most")]


class FoundModel(TypedDict):
    """A model. What the hub tells is null of those that were found without it."""

    id: str
    status: Availability | Literal["on_hub"]
    downloads: int | None
    likes: int | None
    last_modified: str | None
    tags: list[str]


class FoundModels(TypedDict):
    """What was found. `hub_error` says why the hub is not among those that were asked; null: it is."""

    models: list[FoundModel]
    hub_error: str | None


@get("/models/search", summary="Find models", tags=["Cluster"], operation_class=operation(answer=FoundModels))
async def search_models(api: Api, words: Words = "", limit: Limit = 20) -> Response[bytes]:
    """The known models whose names have all the words, then those of the hub, which `POST /models/add` makes known."""
    known = _known(api.state, words)[:limit]
    hub_error: str | None = None
    on_hub: list[HubModel] = []
    try:
        on_hub = await api.hub.search(words, limit)
    except Rejected as refusal:
        hub_error = refusal.reason
    told = {one.id: one for one in on_hub}
    ids = known_models(api.state)
    models = [_found(model_id, status, told.get(model_id)) for model_id, status in known]
    models += [_found(one.id, "on_hub", one) for one in on_hub if one.id not in ids]
    answer: FoundModels = {"models": models[:limit], "hub_error": hub_error}
    return json_response(answer)


def _known(state: State, words: str) -> list[tuple[str, Availability]]:
    wanted = words.casefold().split()
    return [
        (model_id, status)
        for model_id, (_, status) in known_models(state).items()
        if all(word in model_id.casefold() for word in wanted)
    ]


def _found(model_id: str, status: Availability | Literal["on_hub"], told: HubModel | None) -> FoundModel:
    return {
        "id": model_id,
        "status": status,
        "downloads": told and told.downloads,
        "likes": told and told.likes,
        "last_modified": told and told.last_modified,
        "tags": told.tags if told else [],
    }
