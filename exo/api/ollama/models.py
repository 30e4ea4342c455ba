"""`GET /ollama/api/tags` and `POST /ollama/api/show`: the models there are, and one of them."""

from typing import Any

from litestar import Request, Response, get, post
from pydantic import JsonValue
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.bodies.strict import Unsupported
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import known_models
from exo.api.ollama.descriptions import LONG_AGO, Capability, Details, capabilities_of, details_of, digest_of, facts_of
from exo.api.ollama.named import Named
from exo.api.ollama.names import find_tagged, tagged
from exo.domain.model_card import ModelCard


class Tag(TypedDict):
    """A model that is on a disk. `digest` is that of its id."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details
    capabilities: list[Capability]


class Tags(TypedDict):
    """All of them, the ready ones first."""

    models: list[Tag]


class Shown(TypedDict):
    """One model."""

    license: str
    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, JsonValue]
    capabilities: list[Capability]
    modified_at: str


class ShowRequest(Named):
    """The body of `POST /ollama/api/show`."""

    verbose: bool | None = None
    """There is nothing that would be left out."""
    system: Unsupported = None
    template: Unsupported = None
    options: Unsupported = None


@get(
    "/ollama/api/tags",
    summary="Models on a disk",
    tags=["Ollama"],
    operation_class=operation(answer=Tags),
)
async def list_tags(api: Api) -> Response[bytes]:
    """Every model that some node has on its disk, the ready ones first."""
    cards = [card for card, status in known_models(api.state).values() if status != "obtainable"]
    answer: Tags = {"models": [_tag(card) for card in cards]}
    return json_response(answer)


@post(
    "/ollama/api/show",
    status_code=200,
    summary="One model",
    tags=["Ollama"],
    operation_class=operation(body=ShowRequest, example={"model": "SmolLM2-135M-Instruct"}, answer=Shown),
)
async def show_model(request: Request[Any, Any, Any], api: Api) -> Response[bytes]:
    """A model by its full or short name, on a disk or not."""
    card = find_tagged(api.state, ShowRequest.model_validate_json(await request.body()).wanted)
    answer: Shown = {
        "license": card.license,
        "modelfile": f"FROM {card.model_id}\n",
        "parameters": "",
        "template": "",
        "details": details_of(card),
        "model_info": dict(facts_of(card)),
        "capabilities": capabilities_of(card),
        "modified_at": LONG_AGO,
    }
    return json_response(answer)


def _tag(card: ModelCard) -> Tag:
    name = tagged(card.model_id)
    return {
        "name": name,
        "model": name,
        "modified_at": LONG_AGO,
        "size": card.weight_bytes,
        "digest": digest_of(card.model_id),
        "details": details_of(card),
        "capabilities": capabilities_of(card),
    }
