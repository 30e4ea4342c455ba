"""A name for each request, in its response and in the log: the client's own, or a new one."""

import re

from litestar.types import Scope

from exo.bus.client import new_id

HEADER = "x-request-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


def name_request(scope: Scope) -> bytes:
    """The request's id, which is in its headers from now on: what the client sent, if that may stand in a log."""
    name = HEADER.encode()
    headers: list[tuple[bytes, bytes]] = list(scope["headers"])
    sent = next((value for key, value in headers if key == name), b"")
    if _ACCEPTED.fullmatch(sent):
        return sent
    request_id = new_id().encode()
    scope["headers"] = [*(header for header in headers if header[0] != name), (name, request_id)]
    return request_id
