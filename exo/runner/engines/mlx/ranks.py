"""Ranks that agree by `mlx.distributed`."""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from exo.errors import Fatal
from exo.runner.engines.ranks import SOLO, Ranks

__all__ = ["SOLO", "GroupRanks", "Ranks"]


class GroupRanks:
    """The processes of a group that was joined."""

    def __init__(self, group: mx.distributed.Group, stream: mx.ThreadLocalStream | mx.Stream) -> None:
        """`stream` is the model's: messages on two streams would go out in an order of chance."""
        self._group = group
        self._stream = stream
        self.rank = group.rank()
        self.size = group.size()

    def agree(self, values: Sequence[int]) -> list[int]:
        """The least of each value over all ranks. Raises Fatal where a rank is lost."""
        with mx.stream(self._stream):
            mine = mx.array(list(values), dtype=mx.int64)
            try:
                return cast(list[int], mx.distributed.all_min(mine, group=self._group).tolist())
            except RuntimeError as error:
                raise Fatal(f"another rank of this model is lost: {error}") from error
