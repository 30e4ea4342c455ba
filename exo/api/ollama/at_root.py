"""Ollama's endpoints where its clients look for them: at the root, and not below a path of their own alone."""

from litestar.types import ASGIApp, Receive, Scope, Send

BELOW = "/ollama"
"""Where the endpoints are."""
BEGINNING = "/api/"


def with_ollama_at_root(app: ASGIApp) -> ASGIApp:
    """The application, with what asks at the root for Ollama's endpoints led to where they are."""

    async def led(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/" or path.startswith(BEGINNING):
            scope["path"] = BELOW + path.rstrip("/")
        await app(scope, receive, send)

    return led
