"""The scripted engine's tokenizer: a byte is a token, and so is every piece that a script names."""

import codecs
from collections.abc import Collection, Mapping, Sequence

from exo.domain.messages.requests import GenerationRequest
from exo.errors import Rejected
from exo.models.output_format import OutputFormat
from exo.runner.engines.script import parse_script
from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.harmony.vocabulary import OpenParser

END_TOKEN = 256
FIRST_PIECE = 1000
"""Pieces are numbered from here, in the order in which scripts name them."""


class ScriptedTokenizer:
    """Knows the pieces of the scripts that were submitted to its engine."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._pieces: list[bytes] = []

    @property
    def end_tokens(self) -> frozenset[int]:
        """One, above the bytes."""
        return frozenset({END_TOKEN})

    def encode_chat(
        self, messages: Sequence[Mapping[str, object]], arguments: Mapping[str, object] | None = None
    ) -> list[int]:
        """The bytes of the last user message. Raises Rejected where there is none."""
        for message in reversed(messages):
            if message.get("role") == "user":
                return list(str(message["content"]).encode(errors="replace"))
        raise Rejected("there is no user message", param="messages")

    def encode_text(self, text: str) -> list[int]:
        """The text's bytes."""
        return list(text.encode(errors="replace"))

    @property
    def text_ending(self) -> Sequence[int]:
        """None."""
        return ()

    def decode(self, tokens: Sequence[int]) -> str:
        """The bytes of the tokens as text."""
        return b"".join(map(self.raw, tokens)).decode(errors="replace")

    def output_format(self, prompt: Sequence[int]) -> OutputFormat:
        """What the script says. Raises Rejected where it is none."""
        return parse_script(self.text(prompt)).output_format()

    def detokenizer(self, markers: Collection[str] = (), after: Sequence[int] = ()) -> Detokenizer:
        """A fresh one. Markers are text like any other, and bytes are the same after any text."""
        return ScriptedDetokenizer(self)

    @property
    def harmony_parsers(self) -> OpenParser | None:
        """None: its Harmony is text."""
        return None

    @property
    def vocabulary_size(self) -> int:
        """Grows with every piece that a script names."""
        return FIRST_PIECE + len(self._pieces)

    def token_bytes(self, token: int) -> bytes:
        """A byte, or a piece."""
        if FIRST_PIECE <= token < self.vocabulary_size:
            return self._pieces[token - FIRST_PIECE]
        return bytes([token]) if 0 <= token < END_TOKEN else b""

    def vocabulary_source(self) -> None:
        """None: there are no guides."""

    def guide(self, request: GenerationRequest, prompt: Sequence[int]) -> None:
        """None: the script alone says what comes."""

    def text(self, prompt: Sequence[int]) -> str:
        """The message that `encode_chat` made `prompt` of. Raises Rejected for tokens that are no bytes of a text."""
        try:
            return bytes(prompt).decode()
        except ValueError as error:
            raise Rejected("the prompt is not the bytes of a text") from error

    def token(self, piece: str | Sequence[int]) -> int:
        """The token that stands for `piece`: text or raw bytes."""
        raw = piece.encode() if isinstance(piece, str) else bytes(piece)
        if raw not in self._numbers:
            self._numbers[raw] = FIRST_PIECE + len(self._pieces)
            self._pieces.append(raw)
        return self._numbers[raw]

    def raw(self, token: int) -> bytes:
        """The bytes that `token` stands for; none for the end token."""
        if token < END_TOKEN:
            return bytes([token])
        return b"" if token < FIRST_PIECE else self._pieces[token - FIRST_PIECE]


class ScriptedDetokenizer:
    """Joins bytes to characters, however they are cut."""

    __slots__ = ("_decoder", "_tokenizer")

    def __init__(self, tokenizer: ScriptedTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that has become certain with this token."""
        return self._decoder.decode(self._tokenizer.raw(token))

    def marker(self, token: int) -> str:
        """None: no token is special but the end token."""
        return ""
