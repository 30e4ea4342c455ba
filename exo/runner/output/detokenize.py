"""Tokens to text, one at a time."""

from typing import Protocol


class Detokenizer(Protocol):
    """Turns one generation's tokens into text, in order."""

    def push(self, token: int) -> str:
        """The text that has become certain with this token.

        Empty while a character is cut over tokens, and for special tokens. A character whose last bytes never come
        is never emitted.
        """
        ...
