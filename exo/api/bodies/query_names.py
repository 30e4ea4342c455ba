"""Query parameters that an endpoint does not have, or has once, are refused: nothing must be dropped in silence."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from litestar import Request
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.typing import FieldDefinition

from exo.errors import Rejected


async def refuse_unknown(request: Request[Any, Any, Any]) -> None:
    """Before each request. Raises Rejected, naming the parameter and those that there are.

    An endpoint without any takes all: nothing can be misspelt, and probes and clients of other servers add their own.
    """
    known = query_fields(request.route_handler)
    for name, values in request.query_params.dict().items() if known else ():
        if name not in known:
            reason = f"'{name}' is no parameter of {request.url.path}: there are {', '.join(known)}"
            raise Rejected(reason, code="unsupported_parameter", param=name)
        if len(values) > 1 and not known[name].is_non_string_sequence:
            raise Rejected(f"'{name}' is given {len(values)} times: give it once", param=name)


@cache
def query_fields(handler: HTTPRouteHandler) -> Mapping[str, FieldDefinition]:
    """An endpoint's query parameters, by what clients call them."""
    fields = handler.parsed_fn_signature.parameters.values()
    return {
        field.kwarg_definition.name: field
        for field in fields
        if isinstance(field.kwarg_definition, QueryParameter) and field.kwarg_definition.name
    }
