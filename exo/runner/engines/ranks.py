"""The ranks of one instance: the runner processes that hold a model together and must do the same steps."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from exo.domain.shard import Backend
from exo.errors import Retryable

Answer = Callable[[], list[int]]
"""Waits for what the ranks agreed on."""


@dataclass(frozen=True, slots=True)
class Peers:
    """How the ranks of one instance reach each other."""

    rank: int
    """This one's."""
    addresses: tuple[str, ...]
    """`host:port` of each rank, as its neighbours reach it."""
    backend: Backend
    rdma_devices: tuple[tuple[str, ...], ...] = ()
    """For jaccl: row by row of each rank, the device by which it reaches each rank; empty for itself."""
    coordinator: str = ""
    """For jaccl: `host:port` of rank 0, as this rank reaches it."""


class Ranks(Protocol):
    """This process among those that hold one model. Used from the engine's thread only.

    All ranks call `agree` and `ask` as often, in the same order, with equally many values (each within 63 bits and a
    sign), or they wait for each other without end.
    """

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def agree(self, values: Sequence[int]) -> list[int]:
        """The least of each value over all ranks; every rank gets the same. Raises Retryable where a rank is lost."""
        ...

    def ask(self, values: Sequence[int]) -> Answer:
        """As `agree`, without waiting: what is begun after it goes on meanwhile. The answer may raise Retryable."""
        ...


def free_port(host: str) -> int:
    """A port of the address `host` that nobody listens at. Raises Retryable where this machine has no such address."""
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise Retryable(
                f"the others are to reach this machine at {host}, which is none of its addresses"
            ) from error
        return int(probe.getsockname()[1])


class _Solo:
    """One rank, which agrees with itself at no cost."""

    size = 1

    def agree(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def ask(self, values: Sequence[int]) -> Answer:
        return lambda: list(values)


SOLO: Ranks = _Solo()
"""The ranks of a model that one process holds whole."""
