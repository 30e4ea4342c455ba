"""Bodies come as they are: a compressed one could unfold to any size, and hold up everybody while it does."""

from litestar.handlers import BaseRouteHandler

from exo.api.http.access import Connection
from exo.errors import Rejected

HEADER = "content-encoding"


async def refuse_encoded(connection: Connection, _handler: BaseRouteHandler) -> None:
    """Before each request. Raises Rejected where its body is not as JSON has it."""
    for coding in connection.headers.getall(HEADER, []):
        if coding.lower() not in ("", "identity"):
            reason = f"{HEADER}: '{coding}' is not taken: send the body as it is, without this header"
            raise Rejected(reason, code="unsupported_media_type", param=HEADER)
