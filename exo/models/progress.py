"""What a long step on a model's files tells its caller, and how its caller stops it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from exo.errors import ExoError

Stage = Literal["waiting", "fetching", "verifying", "converting"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one stage is. `total_bytes` is 0 where it is not known yet."""

    stage: Stage
    done_bytes: int
    total_bytes: int


OnProgress = Callable[[Progress], None]
IsCancelled = Callable[[], bool]


class Cancelled(ExoError):  # noqa: N818  (nothing went wrong: somebody asked for it)
    """The caller asked to stop. What was on disk before is untouched; a download's bytes stay for the next try."""


def ignore_progress(_progress: Progress) -> None:
    """For callers that show nothing."""


def never() -> bool:
    """For callers that do not stop halfway."""
    return False


def stop_if(cancelled: IsCancelled) -> None:
    """Raises Cancelled when the caller asked to stop."""
    if cancelled():
        raise Cancelled("cancelled")
