"""`GET /v1/models`: what the cluster can run."""

from typing import Literal

from litestar import Response, get
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import Availability, find_model, known_models
from exo.domain.model_card import ModelCard


class ModelAnswer(TypedDict):
    """A model, as OpenAI has it, and what exo adds."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    name: str
    status: Availability
    context_length: int
    quantization: str
    license: str


class ModelsAnswer(TypedDict):
    """A list of them."""

    object: Literal["list"]
    data: list[ModelAnswer]


@get("/v1/models", summary="List models", tags=["OpenAI"], operation_class=operation(answer=ModelsAnswer))
async def list_models(api: Api) -> Response[bytes]:
    """Every model that some node has or can get, the ready ones first."""
    models = [_described(card, status) for card, status in known_models(api.state).values()]
    answer: ModelsAnswer = {"object": "list", "data": models}
    return json_response(answer)


@get("/v1/models/{name:path}", summary="One model", tags=["OpenAI"], operation_class=operation(answer=ModelAnswer))
async def show_model(name: str, api: Api) -> Response[bytes]:
    """A model by its full or short name."""
    card = find_model(api.state, name.removeprefix("/"))
    _, status = known_models(api.state)[card.model_id]
    return json_response(_described(card, status))


def _described(card: ModelCard, status: Availability) -> ModelAnswer:
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
