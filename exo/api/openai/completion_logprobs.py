"""Logprobs as completions have them: four lists, of an entry for each token."""

from codecs import getincrementaldecoder
from collections.abc import Sequence

from typing_extensions import TypedDict

from exo.domain.logprobs import TokenLogprob, TokenLogprobs


class LogprobLists(TypedDict):
    """An entry in each for each token. `text_offset` counts characters from the beginning of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionLogprobs:
    """Tells of one choice's tokens, in one or several parts."""

    __slots__ = ("_decoder", "_offset")

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0
        """Characters of the text that came before."""

    def part(self, told: Sequence[TokenLogprobs]) -> LogprobLists:
        """Of the next tokens."""
        return {
            "tokens": [_shown(one) for one in told],
            "token_logprobs": [one.logprob for one in told],
            "top_logprobs": [_likeliest(one) for one in told],
            "text_offset": [self._passed(one) for one in told],
        }

    def _passed(self, token: TokenLogprobs) -> int:
        offset = self._offset
        self._offset += len(self._decoder.decode(bytes(token.bytes)))
        return offset


def _likeliest(token: TokenLogprobs) -> dict[str, float]:
    """The likeliest ones, and the one that was chosen."""
    return {_shown(one): one.logprob for one in (*token.top_logprobs, token)}


def _shown(token: TokenLogprob) -> str:
    """Its text; bytes that are no text by themselves as OpenAI shows them, so that no two look the same."""
    raw = bytes(token.bytes)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
