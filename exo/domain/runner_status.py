"""The states of a runner: waiting -> connecting -> loading -> warming -> ready, or failed from any of them.

One of several ranks is joining between connecting and loading.
"""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from exo.domain.base import Frozen


class Waiting(Frozen):
    """Placed, and no process yet: its node is down, or the model is still being prepared there."""

    type: Literal["waiting"] = "waiting"


class Connecting(Frozen):
    """The process was started and reaches for NATS."""

    type: Literal["connecting"] = "connecting"


class Joining(Frozen):
    """One of several ranks: the process is up, and waits to be told the addresses of its peers."""

    type: Literal["joining"] = "joining"
    port: Annotated[PositiveInt, Field(le=65535)]
    """Where it is to listen for them."""


class Loading(Frozen):
    """Weights are being read. How far is a gauge."""

    type: Literal["loading"] = "loading"


class Warming(Frozen):
    """A short prompt is run, to compile what needs compiling and to measure the speed."""

    type: Literal["warming"] = "warming"


class Ready(Frozen):
    """Takes tasks."""

    type: Literal["ready"] = "ready"
    tokens_per_second: NonNegativeFloat
    """Of one stream, at warm-up."""


class Failed(Frozen):
    """The process ended, or was ended, before it was asked to."""

    type: Literal["failed"] = "failed"
    reason: str
    permanent: bool = False
    """The same would happen again: a broken model file, not a lost connection."""
    lost: tuple[NonNegativeInt, ...] = ()
    """The other ranks that are gone, or of which one is: the reason is theirs."""


class Stopped(Frozen):
    """The process ended because it was told to."""

    type: Literal["stopped"] = "stopped"


RunnerStatus = Annotated[
    Waiting | Connecting | Joining | Loading | Warming | Ready | Failed | Stopped, Field(discriminator="type")
]
