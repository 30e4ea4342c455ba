"""An answer in JSON."""

from collections.abc import Mapping

from litestar import Response
from pydantic_core import to_json

from exo.api.bodies.openapi import JSON


def json_response(
    value: object, *, status_code: int | None = None, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    """A value as pydantic writes it. `status_code`: None is that of the route."""
    return written_json(to_json(value), status_code=status_code, headers=headers)


def written_json(
    body: bytes, *, status_code: int | None = None, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    """JSON that is written already: on another thread, in parts, or by a dialect."""
    return Response(body, status_code=status_code, headers=headers, media_type=JSON)
