"""Values of query parameters that cannot be used, told with those that can."""

from typing import Any, Literal, get_args, get_origin

from litestar import Request
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.typing import FieldDefinition

from exo.api.bodies.query_names import query_fields
from exo.api.http.problem import Problem

_KINDS: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def query_problem(request: Request[Any, Any, Any], error: Exception) -> Problem | None:
    """The problem with a query parameter's value, where the exception is about one; else None."""
    details: Any = error.extra if isinstance(error, HTTPException) else None
    handler = request.scope.get("route_handler")
    match details:
        case [{"key": str(name), "source": "query"}, *_] if isinstance(handler, HTTPRouteHandler):
            return _problem(handler, name)
        case _:
            return None


def _problem(handler: HTTPRouteHandler, name: str) -> Problem | None:
    """`name`: as clients have it, or as the endpoint's function does: Litestar tells of either."""
    for shown, field in query_fields(handler).items():
        if name in (shown, field.name):
            return Problem("invalid_request", f"{shown}: it must be {wanted(field)}", shown)
    return None


def wanted(field: FieldDefinition) -> str:
    """What a parameter can be: `one of model, key, day`, `a whole number from 1 to 1000`."""
    types = [one for one in (get_args(field.annotation) or (field.annotation,)) if one is not type(None)]
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else get_args(types[0])
    if choices and not isinstance(choices[0], type):
        return f"one of {', '.join(map(str, choices))}"
    return _KINDS.get(types[0], "a list of texts") + _limits(field.kwarg_definition)


def _limits(limits: object) -> str:
    if not isinstance(limits, QueryParameter):
        return ""
    above = f" above {limits.gt}" if limits.gt is not None else ""
    least = f" from {limits.ge}" if limits.ge is not None else above
    most = f" to {limits.le}" if limits.le is not None else ""
    few = f" of at least {limits.min_length} characters" if limits.min_length else ""
    return least + most + few
