"""Keys of a real node, made as people make them."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from exo.domain.keys import Scope
from tests.stack import Stack, wait_until

SCOPES: tuple[Scope, ...] = ("inference", "read", "admin")
PAGE = "https://chat.example.com"
"""The origin whose pages may call a secured node."""


def create(stack: Stack, name: str, *scopes: str) -> str:
    """A new key's secret."""
    options = [option for scope in scopes for option in ("--scope", scope)]
    made = stack.cli("keys", "create", "--name", name, *options)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def bearer(secret: str) -> dict[str, str]:
    """As most clients send it."""
    return {"authorization": f"Bearer {secret}"}


@dataclass
class Secured:
    """A node with a key of each scope."""

    stack: Stack
    secrets: dict[Scope, str]
    stranger: httpx.Client
    keyed: dict[Scope, httpx.Client]

    def client(self, scope: Scope | None = None) -> httpx.Client:
        """A client with the key of a scope; None: without any."""
        return self.stranger if scope is None else self.keyed[scope]


@contextmanager
def secured_node(home: Path) -> Generator[Secured]:
    """Start one, with its clients, and stop it at the end."""
    node = Stack(home, cors_origins=PAGE)
    try:
        node.start_ready()
        secrets: dict[Scope, str] = {scope: create(node, f"for-{scope}", scope) for scope in SCOPES}
        node.headers = bearer(secrets["admin"])
        wait_until(lambda: len(httpx.get(f"{node.url}/state/keys", headers=node.headers).json()) == 3, "the keys")
        with ExitStack() as closing:

            def client(headers: dict[str, str]) -> httpx.Client:
                return closing.enter_context(httpx.Client(base_url=node.url, headers=headers, timeout=30))

            keyed: dict[Scope, httpx.Client] = {scope: client(bearer(secret)) for scope, secret in secrets.items()}
            yield Secured(node, secrets, client({}), keyed)
    finally:
        node.stop()
