"""How the command line talks to a node's API."""

from typing import NoReturn

import httpx

from exo.config import Settings
from exo.errors import ExoError


def api_client(settings: Settings, timeout: float | None = 30.0) -> httpx.Client:
    """A client for this node's API. Requests raise httpx errors; see `unreachable`."""
    host = "127.0.0.1" if settings.api_host in {"0.0.0.0", "::"} else settings.api_host
    return httpx.Client(base_url=f"http://{host}:{settings.api_port}", timeout=timeout)


def unreachable(client: httpx.Client, error: httpx.TransportError) -> NoReturn:
    """Raises ExoError that says what to do."""
    raise ExoError(
        f"no API answers at {client.base_url} ({error}): start a node with `make run`, or `honcho start`"
    ) from error


def refused(response: httpx.Response) -> NoReturn:
    """Raises ExoError with what the API said."""
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = response.text or response.reason_phrase
    raise ExoError(message)
