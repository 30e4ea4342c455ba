"""Keys of a real node, made as people make them."""

from tests.stack import Stack


def create(stack: Stack, name: str, *scopes: str) -> str:
    """A new key's secret."""
    options = [option for scope in scopes for option in ("--scope", scope)]
    made = stack.cli("keys", "create", "--name", name, *options)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def bearer(secret: str) -> dict[str, str]:
    """As most clients send it."""
    return {"authorization": f"Bearer {secret}"}
