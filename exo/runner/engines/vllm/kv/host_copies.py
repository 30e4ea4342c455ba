"""Copies of tensors in the host's memory, made while the device goes on computing."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Taker = Callable[[torch.Tensor], None]


@dataclass(slots=True)
class HostCopies:
    """Copies under way, in the order in which they were asked for."""

    _under_way: deque[tuple[torch.cuda.Event, torch.Tensor, Taker]] = field(
        default_factory=deque[tuple[torch.cuda.Event, torch.Tensor, Taker]]
    )

    def begin(self, given: torch.Tensor, taker: Taker) -> None:
        """Has `taker` called with a copy of `given`, or with itself where it is in the host's memory: now, or by a
        later call here."""
        if given.device.type == "cpu":
            taker(given)
            return
        copy = torch.empty(given.shape, dtype=given.dtype, pin_memory=True)
        copy.copy_(given, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._under_way.append((event, copy, taker))
        self._hand_on(lambda event: event.query())

    def finish(self) -> None:
        """Waits for all of them."""
        self._hand_on(_waited_for)

    def _hand_on(self, ready: Callable[[torch.cuda.Event], bool]) -> None:
        while self._under_way and ready(self._under_way[0][0]):
            _, copy, taker = self._under_way.popleft()
            taker(copy)


def _waited_for(event: torch.cuda.Event) -> bool:
    event.synchronize()
    return True
