"""The one-time key by which a state is handed to whoever asked for it, and to nobody else."""

import re
import secrets

from exo.errors import Rejected

KEY_CHARACTERS = 64
"""Hexadecimal digits: 256 bits."""
_KEY = re.compile(f"[0-9a-f]{{{KEY_CHARACTERS}}}")


def new_key() -> str:
    """A key that nobody else knows."""
    return secrets.token_hex(KEY_CHARACTERS // 2)


def check_key(key: str) -> None:
    """Raises Rejected for what is no key."""
    if not _KEY.fullmatch(key):
        raise Rejected(f"a key has {KEY_CHARACTERS} hexadecimal digits", code="invalid_request", param="key")
