"""How events about keys change State. Total, as all of the fold.

Each function gives the fields of State that are others afterwards.
"""

from exo.domain.keys import Key
from exo.domain.messages.events import KeyCreated, KeyRevoked
from exo.domain.state import State, StateChanges


def changed(state: State, event: KeyCreated | KeyRevoked, time: float) -> StateChanges:
    """There is one more key, or one is good no more."""
    return created(state, event, time) if isinstance(event, KeyCreated) else revoked(state, event, time)


def created(state: State, event: KeyCreated, time: float) -> StateChanges:
    """One more key is good."""
    key = Key(name=event.key, digest=event.digest, scopes=event.scopes, created_at=time)
    return {"keys": state.keys.set(event.key, key)}


def revoked(state: State, event: KeyRevoked, time: float) -> StateChanges:
    """It is good no more; its name stays taken."""
    key = state.keys.get(event.key)
    return {"keys": state.keys.set(event.key, key.replaced({"revoked_at": time}))} if key else {}
