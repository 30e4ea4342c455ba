"""Decisions on API keys."""

from exo.domain.keys import ANONYMOUS
from exo.domain.messages.commands import CreateKey, RevokeKey
from exo.domain.messages.events import Event, KeyCreated, KeyRevoked
from exo.domain.state import State
from exo.errors import Rejected


def create(state: State, command: CreateKey) -> list[Event]:
    """The key made. Raises Rejected where the name or the secret was ever used."""
    if command.key == ANONYMOUS:
        raise Rejected(f"'{ANONYMOUS}' is who comes without a key: choose another name", code="duplicate_key")
    if command.key in state.keys:
        reason = f"there is or was a key '{command.key}', and a name is given once: choose another"
        raise Rejected(reason, code="duplicate_key")
    if any(key.digest == command.digest for key in state.keys.values()):
        raise Rejected("this secret is or was that of another key: make a new one", code="duplicate_key")
    scopes = tuple(sorted(set(command.scopes)))
    return [KeyCreated(key=command.key, digest=command.digest, scopes=scopes)]


def revoke(state: State, command: RevokeKey) -> list[Event]:
    """The key revoked. Raises Rejected where it is not there, or is revoked already."""
    key = state.keys.get(command.key)
    if key is None:
        raise Rejected(f"there is no key '{command.key}'", code="key_not_found")
    if key.revoked_at is not None:
        raise Rejected(f"the key '{command.key}' is revoked already", code="already_revoked")
    return [KeyRevoked(key=command.key)]
