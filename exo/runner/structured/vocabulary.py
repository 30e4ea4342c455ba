"""A model's tokens as bytes."""

from collections.abc import Iterable

from llguidance import LLTokenizer

from exo.domain.base import Frozen
from exo.errors import Fatal
from exo.runner.structured.grammars import quoted


class VocabularySource(Frozen):
    """What a vocabulary is made of, here or in another process."""

    tokenizer_json: str
    """The text of a `tokenizer.json`."""
    end_tokens: tuple[int, ...]


class Vocabulary:
    """What each token adds to a text, special tokens by their name."""

    __slots__ = ("tokens",)

    def __init__(self, tokenizer_json: str, end_tokens: Iterable[int]) -> None:
        """Of the text of a `tokenizer.json`. It takes up to a second. Raises Fatal where it cannot be read."""
        try:
            self.tokens = LLTokenizer(tokenizer_json, eos_token=sorted(end_tokens) or None)
        except ValueError as error:
            raise Fatal(f"the tokens of tokenizer.json cannot be told apart: {error}") from error

    @property
    def size(self) -> int:
        """Tokens are numbered from 0 up to this."""
        return self.tokens.vocab_size

    def bytes_of(self, token: int) -> bytes:
        """A token's bytes, which need not be whole characters; none for a number that stands for no token."""
        return self.tokens.decode_bytes([token]) if 0 <= token < self.size else b""

    def find(self, text: str) -> int | None:
        """The one token that is `text`, if there is one."""
        tokens = self.tokens.tokenize_str(text, parse_special=True)
        return tokens[0] if len(tokens) == 1 else None

    def marker(self, text: str) -> str:
        """`text` as Lark: as a token where it is a special one, which a literal does not stand for."""
        token = self.find(text)
        is_special = token is not None and self.tokens.is_special_token(token)
        return f"<[{token}]>" if is_special else quoted(text)
