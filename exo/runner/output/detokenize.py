"""Tokens to text, one at a time."""

from typing import Protocol


class Detokenizer(Protocol):
    """Turns one generation's tokens into text, in order."""

    def push(self, token: int) -> str:
        """The text that has become certain with this token.

        Empty while a character is cut over tokens, and for special tokens that are no markers. A character whose last
        bytes never come is never emitted.
        """
        ...

    def marker(self, token: int) -> str:
        """The marker that the token stands for, empty where it is none."""
        ...
