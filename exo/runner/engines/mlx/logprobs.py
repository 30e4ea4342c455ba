"""What is told of how likely the model found its tokens."""

from typing import cast

import mlx.core as mx

from exo.domain.logprobs import TokenLogprobs
from exo.runner.engines.logprobs import BytesOf, told_logprobs


def rank(logits: mx.array, token: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    """The logprob of `token`, and the `count` likeliest tokens with theirs, the likeliest first.

    `logits` [vocabulary] need not be normalized. Where tokens are equally likely, any of them may be the last ones.
    Waits for the result.
    """
    logprobs = logits.astype(mx.float32) - mx.logsumexp(logits.astype(mx.float32))
    first = logits.size - max(1, min(count, logits.size))
    tokens = mx.argpartition(logprobs, kth=first)[first:]
    values = logprobs[tokens]
    mx.eval(logprobs, tokens, values)
    pairs = zip(cast(list[int], tokens.tolist()), cast(list[float], values.tolist()), strict=True)
    return cast(float, logprobs[token].item()), sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count]


class ModelLogits:
    """Keeps a request's logits as they are before anything changes them.

    A processor that comes before all others. mlx-lm hands a token out one step after it was drawn, so that the logits
    of the step before are the ones that belong to it.
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: mx.array | None = None
        self._now: mx.array | None = None

    def __call__(self, context: mx.array, logits: mx.array) -> mx.array:
        """`logits` as they are; others may write into them afterwards, so what is kept is an array of its own."""
        self._before, self._now = self._now, logits[0]
        return logits

    def of_last_token(self) -> mx.array | None:
        """The logits [vocabulary] that the token handed out last was drawn from; None before the first."""
        return self._before


class Teller:
    """Tells of one request's tokens."""

    __slots__ = ("_bytes_of", "_count", "_stream", "model_logits")

    def __init__(self, count: int, bytes_of: BytesOf, stream: mx.Stream, is_changed: bool) -> None:
        """`count` of the likeliest tokens each. `stream` is one on which the next step does not run already.
        `is_changed`: something changes the logits, so that the model's own have to be kept."""
        self._count = count
        self._bytes_of = bytes_of
        self._stream = stream
        self.model_logits = ModelLogits() if is_changed else None
        """The processor that keeps them."""

    def tell(self, token: int, logprobs: mx.array) -> TokenLogprobs:
        """Of a token that came with `logprobs` [vocabulary], which are what was left after all changes."""
        kept = self.model_logits.of_last_token() if self.model_logits is not None else None
        with mx.stream(self._stream):
            chosen, top = rank(logprobs if kept is None else kept, token, self._count)
        return told_logprobs(token, chosen, top, self._bytes_of)
