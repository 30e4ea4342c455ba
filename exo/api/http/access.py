"""Who may ask for what: as soon as there is a key, every route but `/health` needs one."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from immutables import Map
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler

from exo.domain.ids import KeyName
from exo.domain.keys import ANONYMOUS, Key, Scope, digest_of
from exo.domain.state import State
from exo.errors import Rejected

Connection = ASGIConnection[Any, Any, Any, Any]
Headers = Iterable[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""

OPTION = "access"
"""Under which a route says its Access."""

current_key: ContextVar[Key | None] = ContextVar("current_key", default=None)
"""The key of the request that is being answered; None: it came without one. Known to all that a request starts: as a
parameter it would go through every endpoint, and what one of them forgot to pass on would be nobody's."""

current_address: ContextVar[str] = ContextVar("current_address", default="")
"""From where the request that is being answered came; empty: not known."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a key must have for a route."""

    scopes: frozenset[Scope]
    """One of these; none: nobody is asked."""
    before_state: bool = False
    """Whether it answers also while no master has said which keys there are."""


EVERYBODY = Access(frozenset())
PROBES = Access(frozenset[Scope](["inference", "read"]), before_state=True)
ANY_KEY = Access(frozenset[Scope](["inference", "read"]))
INFERENCE = Access(frozenset[Scope](["inference"]))
READ = Access(frozenset[Scope](["read"]))
ADMIN = Access(frozenset[Scope](["admin"]))


def with_access(access: Access, *handlers: HTTPRouteHandler) -> list[HTTPRouteHandler]:
    """Routes of the same Access."""
    for handler in handlers:
        handler.opt[OPTION] = access
    return list(handlers)


@dataclass(slots=True)
class Keys:
    """The keys that are good now, by digest. Looked up by a digest, and so without a hint at any secret by the time
    that it takes."""

    is_locked: bool
    """Whether a key is needed even where there is none: the API can be reached from other machines."""
    _known: Map[KeyName, Key] = field(default_factory=Map[KeyName, Key])
    _good: Mapping[str, Key] = field(default_factory=dict[str, Key])

    def admit(self, state: State, headers: Headers, access: Access) -> Key | None:
        """Whoever asks; None: somebody without a key, where none is needed.

        Raises Rejected where a key is needed and none that is good came, or one that does not reach this.
        """
        if state.keys is not self._known:
            self._known = state.keys
            self._good = {key.digest: key for key in state.keys.values() if key.revoked_at is None}
        if not self._good and not self.is_locked:
            return None
        presented = secrets_in(headers)
        key = next((good for one in presented if (good := self._good.get(digest_of(one)))), None)
        if key is None:
            raise Rejected(_unknown(bool(presented), bool(self._good)), code="invalid_api_key")
        if not key.allows(access.scopes):
            needed = " or ".join(sorted(access.scopes))
            reason = f"the key '{key.name}' is for {' and '.join(key.scopes)}; this needs one for {needed}"
            raise Rejected(reason, code="insufficient_scope")
        return key


def secrets_in(headers: Headers) -> list[bytes]:
    """What was sent as a key: as OpenAI's, Ollama's and most clients do, or as Anthropic's."""
    found: list[bytes] = []
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            found.append(value[7:].strip())
        elif name == b"x-api-key":
            found.append(value.strip())
    return found


def payer() -> KeyName:
    """Who pays for what the current request asks for."""
    key = current_key.get()
    return ANONYMOUS if key is None else key.name


def client() -> str:
    """Who shares the slots of models with others: the key, or for requests without one the address they come from."""
    key = current_key.get()
    return current_address.get() if key is None else key.name


def is_admin() -> bool:
    """Whether the current request may do everything: by its key, or where none is needed."""
    key = current_key.get()
    return key is None or "admin" in key.scopes


def owns(owner: KeyName | None) -> bool:
    """Whether the current request may do as it likes with what this key asked for: its own, or as an admin any. None:
    with what is not there."""
    key = current_key.get()
    return is_admin() or key is None or owner in (None, key.name)


def access_of(handler: BaseRouteHandler) -> Access:
    """What a route needs: everything, where it does not say."""
    return handler.opt.get(OPTION, ADMIN)


def _unknown(is_presented: bool, is_any: bool) -> str:
    if not is_any:
        return "there is no key yet, or no more: make one with `exo keys create` where NATS and a master run"
    if is_presented:
        return "this key is not known, or revoked"
    return "a key is needed: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
