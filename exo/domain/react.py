"""One message's whole consequence: what is decided about it, and the queued work that can go on because of that."""

from collections.abc import Callable

from exo.domain import limits
from exo.domain.advance import after
from exo.domain.decide import decide
from exo.domain.dispatch import dispatch
from exo.domain.messages.commands import Command
from exo.domain.messages.events import Event
from exo.domain.messages.reports import Report
from exo.domain.state import State


def react(
    state: State,
    message: Command | Report,
    now: float,
    new_id: Callable[[], str],
    queue_most: int = limits.QUEUE_PER_MODEL,
) -> list[list[Event]]:
    """The events that a message leads to, in order. Pure, as `decide` and `dispatch` are.

    In units that are to be recorded whole: what was decided is one; each step of queued work is one of its own, since
    `advance` brings about again what was not recorded.
    """
    decided = decide(state, message, now, new_id, queue_most)
    if not decided:
        return []
    return [decided, *([event] for event in dispatch(after(state, decided, now), now, new_id))]
