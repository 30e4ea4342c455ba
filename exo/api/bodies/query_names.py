"""The names of query parameters: those that an endpoint does not have, or has once, are refused, so that nothing is
dropped in silence."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from litestar import Request
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.typing import FieldDefinition

from exo.api.http.asked_path import asked_path
from exo.errors import Rejected


async def check_query_names(request: Request[Any, Any, Any]) -> None:
    """Before each request. Raises Rejected, naming the parameter: one that is missing; an unknown one, with those that
    there are; or one that is given twice.

    An endpoint without any takes all: nothing can be misspelt, and probes and clients of other servers add their own.
    """
    known, given = query_fields(request.route_handler), request.query_params.dict()
    for name, values in given.items() if known else ():
        if name not in known:
            reason = f"'{name}' is no parameter of {asked_path(request)}: there are {', '.join(known)}"
            raise Rejected(reason, code="unsupported_parameter", param=name)
        if len(values) > 1 and not known[name].is_non_string_sequence:
            raise Rejected(f"'{name}' is given {len(values)} times: give it once", param=name)
    missing = next((name for name, field in known.items() if field.is_required and name not in given), None)
    if missing is not None:
        raise Rejected(f"'{missing}' is missing: {asked_path(request)} needs it", param=missing)


@cache
def query_fields(handler: HTTPRouteHandler) -> Mapping[str, FieldDefinition]:
    """An endpoint's query parameters, by what clients call them."""
    fields = handler.parsed_fn_signature.parameters.values()
    return {
        field.kwarg_definition.name: field
        for field in fields
        if isinstance(field.kwarg_definition, QueryParameter) and field.kwarg_definition.name
    }
