"""The path that a client asked for, wherever it was led."""

from typing import Any
from urllib.parse import unquote

from litestar.connection import ASGIConnection


def asked_path(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """With `EXO_OLLAMA_AT_ROOT` it is not that of the endpoint."""
    return unquote(connection.scope["raw_path"].decode("latin-1"))
