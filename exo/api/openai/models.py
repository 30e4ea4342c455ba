"""`GET /v1/models`: what the cluster can run."""

from litestar import Response, get
from pydantic_core import to_json

from exo.api.context import Api
from exo.api.models_known import Availability, find_model, known_models
from exo.domain.model_card import ModelCard


@get("/v1/models", summary="List models", tags=["OpenAI"])
async def list_models(api: Api) -> Response[bytes]:
    """Every model that some node has or can get, the ready ones first."""
    models = [_described(card, status) for card, status in known_models(api.state).values()]
    return Response(to_json({"object": "list", "data": models}), media_type="application/json")


@get("/v1/models/{name:path}", summary="One model", tags=["OpenAI"])
async def show_model(name: str, api: Api) -> Response[bytes]:
    """A model by its full or short name."""
    card = find_model(api.state, name.removeprefix("/"))
    _, status = known_models(api.state)[card.model_id]
    return Response(to_json(_described(card, status)), media_type="application/json")


def _described(card: ModelCard, status: Availability) -> dict[str, object]:
    owner, _, name = card.model_id.rpartition("/")
    return {
        "id": card.model_id,
        "object": "model",
        "created": 0,
        "owned_by": owner or "local",
        "name": name,
        "status": status,
        "context_length": card.context,
        "quantization": card.quantization,
        "license": card.license,
    }
