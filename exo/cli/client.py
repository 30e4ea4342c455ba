"""How the command line talks to a node's API."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NoReturn

import httpx

from exo.config import Settings, load_settings
from exo.errors import ExoError


def api_client(settings: Settings, timeout: float | None = 30.0) -> httpx.Client:
    """A client for this node's API. Requests raise httpx errors; see `unreachable`."""
    key = settings.api_key
    headers = {} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"}
    return httpx.Client(base_url=settings.api_url, timeout=timeout, headers=headers)


def unreachable(client: httpx.Client, error: httpx.TransportError) -> NoReturn:
    """Raises ExoError that says what to do."""
    raise ExoError(
        f"no API answers at {client.base_url} ({error}): start a node with `make run`, or `honcho start`"
    ) from error


def refused(response: httpx.Response) -> NoReturn:
    """Raises ExoError with what the API said."""
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        raise ExoError("the API wants a key, and EXO_API_KEY has none that is good: `exo keys create` makes one")
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = response.text or response.reason_phrase
    raise ExoError(message)


def ask(method: str, path: str, patience: float = 30.0, **arguments: Any) -> dict[str, Any]:
    """The JSON that this node's API answers within `patience`, seconds. Raises ExoError with what it said otherwise."""
    with api_client(load_settings(), patience) as client:
        try:
            response = client.request(method, path, **arguments)
        except httpx.TransportError as error:
            unreachable(client, error)
    if response.is_error:
        refused(response)
    return response.json()


def event_of(kind: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The first event of a type that a command led to. Raises ExoError where it has led to none yet."""
    for recorded in answer.get("events", []):
        event = recorded["entry"]["event"]
        if event["type"] == kind:
            return event
    raise ExoError(f"no master has decided yet: GET /v1/commands/{answer['command_id']} will tell")
