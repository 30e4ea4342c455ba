"""Ranks that agree by `mlx.distributed`."""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from exo.errors import Retryable
from exo.runner.engines.ranks import Answer


class GroupRanks:
    """The processes of a group that was joined."""

    def __init__(self, group: mx.distributed.Group, stream: mx.ThreadLocalStream | mx.Stream) -> None:
        """`stream` is the model's: messages on two streams would go out in an order of chance."""
        self._group = group
        self._stream = stream
        self.size = group.size()

    def agree(self, values: Sequence[int]) -> list[int]:
        """The least of each value over all ranks. Raises Retryable where a rank is lost."""
        return self.ask(values)()

    def ask(self, values: Sequence[int]) -> Answer:
        """As `agree`, once the answer is called for. It comes after all that was begun before it."""
        with mx.stream(self._stream):
            least = mx.distributed.all_min(mx.array(list(values), dtype=mx.int64), group=self._group)
            mx.async_eval(least)
        return lambda: _read(least)


def _read(least: mx.array) -> list[int]:
    try:
        return cast(list[int], least.tolist())
    except RuntimeError as error:
        raise Retryable(f"the connection to another runner of this model was lost ({error})") from error
