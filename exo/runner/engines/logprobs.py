"""Logprobs as they are told, the same for every engine."""

from collections.abc import Callable, Iterable

from exo.domain.logprobs import LEAST_LOGPROB, TokenLogprob, TokenLogprobs

BytesOf = Callable[[int], bytes]
"""What a token adds to the text."""


def told_logprobs(token: int, logprob: float, top: Iterable[tuple[int, float]], bytes_of: BytesOf) -> TokenLogprobs:
    """Of a chosen token, and of the likeliest ones at its position, in the order of `top`."""
    chosen = _told(token, logprob, bytes_of)
    return TokenLogprobs(
        token=chosen.token,
        bytes=chosen.bytes,
        logprob=chosen.logprob,
        top_logprobs=tuple(_told(one, of_one, bytes_of) for one, of_one in top),
    )


def _told(token: int, logprob: float, bytes_of: BytesOf) -> TokenLogprob:
    raw = bytes_of(token)
    # Rounding may leave a little more than 0. What is no number is as good as impossible.
    finite = min(0.0, logprob) if logprob >= LEAST_LOGPROB else LEAST_LOGPROB
    return TokenLogprob(token=raw.decode(errors="replace"), bytes=tuple(raw), logprob=finite)
