"""API keys: who may ask this cluster for what."""

import hashlib
from collections.abc import Set
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from exo.domain.base import Frozen
from exo.domain.ids import KeyName

ANONYMOUS = KeyName("anonymous")
"""Stands for whoever came without a key; no key has this name."""

Scope = Literal["inference", "read", "admin"]
"""inference: have models answer. read: see State, log and usage. admin: both, and commands."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""SHA-256 of a key's secret, hexadecimal. A slow hash is for passwords, which can be guessed: a secret is 256 random
bits, of which nobody tries enough, and each request would have to pay for the slowness."""

Name = Annotated[KeyName, Field(pattern=r"^[\w.@+-]{1,64}$")]
"""Letters and digits of any script and a few marks: it stands in shells, paths and logs as it is."""

Scopes = Annotated[tuple[Scope, ...], Field(min_length=1, max_length=3)]


def digest_of(secret: bytes) -> str:
    """A secret's digest, by which a key is known."""
    return hashlib.sha256(secret).hexdigest()


class Key(Frozen):
    """A key that was made. Its secret is nowhere but with its owner."""

    name: KeyName
    digest: str
    scopes: tuple[Scope, ...]
    created_at: NonNegativeFloat
    revoked_at: NonNegativeFloat | None = None
    """None: it is good."""

    def allows(self, wanted: Set[Scope]) -> bool:
        """Whether it reaches what any of the `wanted` scopes does; admin reaches everything."""
        return "admin" in self.scopes or not wanted.isdisjoint(self.scopes)
