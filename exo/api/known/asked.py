"""How every request to a model begins, whichever API it is of."""

from collections.abc import Callable
from typing import Any, TypeVar

from litestar import Request

from exo.api.bodies.strict import AsksModel
from exo.api.context import Api
from exo.api.known.models import find_model
from exo.domain.model_card import ModelCard
from exo.domain.state import State

Body = TypeVar("Body", bound=AsksModel)
Find = Callable[[State, str], ModelCard]
"""The card of a model by its name. Raises as `find_model`."""


async def body_and_card(
    api: Api, request: Request[Any, Any, Any], kind: type[Body], find: Find = find_model
) -> tuple[Body, ModelCard]:
    """A request's body, and the card of the model that it names.

    Raises pydantic's ValidationError for a body that is none of this kind, before the model is looked up; then as
    `find_model`.
    """
    body = kind.model_validate_json(await request.body())
    return body, find(api.state, body.model)
