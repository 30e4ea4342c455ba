"""HEAD: as GET, without the body (RFC 9110, 9.3.2). Load balancers and watchers ask so whether an API lives."""

from litestar import HttpMethod
from litestar.types import Message, Scope, Send

from exo.api.http.access import Headers


def as_get(scope: Scope) -> Scope:
    """A request for HEAD as one for GET, in a copy: the web server leaves a body out by what was asked for. Others as
    they are."""
    if scope["type"] == "http" and scope["method"] == "HEAD":
        scope = scope.copy()
        scope["method"] = HttpMethod.GET
    return scope


def without_body(send: Send) -> Send:
    """Sends an answer's head, and that this is all: a stream learns that nobody reads it any more."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return sending


def allowing_head(headers: Headers) -> Headers:
    """An answer's headers, where `Allow` has HEAD beside GET: the application knows of no HEAD."""
    return [(name, _with_head(value)) if name == b"allow" else (name, value) for name, value in headers]


def _with_head(methods: bytes) -> bytes:
    names = set(methods.split(b", "))
    return b", ".join(sorted({*names, b"HEAD"} if b"GET" in names else names))
