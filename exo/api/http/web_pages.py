"""Web pages: those of other origins may call only where the operator lets them in.

CORS alone keeps a page from reading an answer, not from sending what needs none: to unload a model takes one line of
JavaScript on any page that somebody at this machine looks at.
"""

from collections.abc import Sequence

from litestar.config.cors import CORSConfig
from litestar.handlers import BaseRouteHandler

from exo.api.http.access import Connection
from exo.errors import Rejected

EXPOSED = ["x-request-id", "request-id", "retry-after"]
"""Headers that a page may read."""


def cors_of(origins: Sequence[str]) -> CORSConfig | None:
    """What browsers are told; None: nothing. A browser's question whether a page may call needs no key."""
    return CORSConfig(allow_origins=list(origins), expose_headers=EXPOSED) if origins else None


async def refuse_foreign_page(connection: Connection, _handler: BaseRouteHandler) -> None:
    """Before each request. Raises Rejected where a page of another origin, that is not let in, wants a change."""
    origin = connection.headers.get("origin")
    if origin is None or connection.scope.get("method") == "GET":
        return
    config = connection.app.cors_config
    is_own = origin.partition("://")[2] == connection.headers.get("host")
    if not is_own and (config is None or not config.is_origin_allowed(origin)):
        raise Rejected(f"a web page of {origin} may not call: EXO_CORS_ORIGINS lets it", code="foreign_page")
