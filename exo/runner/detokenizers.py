"""Tokens to text, one at a time, as a model's `tokenizer.json` has it.

Rare characters are cut over tokens in two ways: by tokens that are any bytes, which the library's stream joins, and by
byte fallback, where a token is named for its one byte (`<0xE2>`), which it does not join in every case.
"""

import codecs
from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

A_BYTE = "<0x41>"
"""The token of the letter A, in a vocabulary with byte fallback."""


def byte_tokens(tokenizer: Tokenizer) -> Mapping[int, bytes]:
    """The tokens that stand for one byte each, with it, in a vocabulary with byte fallback; none in others."""
    letter = tokenizer.token_to_id(A_BYTE)
    if letter is None or tokenizer.decode([letter]) != "A":
        return {}
    named = {byte: tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}
    return {number: bytes([byte]) for byte, number in named.items() if number is not None}


class StreamDetokenizer:
    """Incremental decoding: the text is the same as that of decoding all tokens at once, less an incomplete tail."""

    __slots__ = ("_markers", "_stream", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, markers: Mapping[int, str], after: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._markers = markers
        self._stream = DecodeStream(ids=list(after), skip_special_tokens=True)

    def push(self, token: int) -> str:
        """The text that has become certain with this token."""
        if (marker := self._markers.get(token)) is not None:
            return marker
        return self._stream.step(self._tokenizer, token) or ""

    def marker(self, token: int) -> str:
        """The marker that the token stands for, empty where it is none."""
        return self._markers.get(token, "")


class ByteFallbackDetokenizer:
    """The same for a vocabulary with byte fallback, such as those of Llama 2, Mistral 7B and Gemma.

    Where bytes make no character, the library takes back whole ones before them, and its stream raises. Here what was
    whole stays, and what can become no character is U+FFFD.
    """

    __slots__ = ("_byte_tokens", "_is_first", "_letter", "_letters", "_markers", "_tokenizer")

    def __init__(
        self, tokenizer: Tokenizer, byte_tokens: Mapping[int, bytes], markers: Mapping[int, str], is_first: bool = True
    ) -> None:
        """`is_first`: the text begins here, where a token loses the space before its word."""
        self._tokenizer = tokenizer
        self._byte_tokens = byte_tokens
        self._markers = markers
        self._is_first = is_first
        self._letter = next(token for token, raw in byte_tokens.items() if raw == b"A")
        self._letters = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that has become certain with this token."""
        raw = self._byte_tokens.get(token)
        if raw is not None:
            self._is_first = False
            return self._letters.decode(raw)
        broken = self._letters.decode(b"", final=True)
        return broken + (self._markers.get(token) or self._text(token))

    def marker(self, token: int) -> str:
        """The marker that the token stands for, empty where it is none."""
        return self._markers.get(token, "")

    def _text(self, token: int) -> str:
        """Of a token that is no single byte: the same after any text, here after a letter."""
        text = self._tokenizer.decode([self._letter, token], skip_special_tokens=True)[1:]
        if self._is_first and text:
            self._is_first = False
            return self._tokenizer.decode([token], skip_special_tokens=True)
        return text
