"""One message's whole consequence: what is decided about it, and the queued work that can go on because of that."""

from collections.abc import Callable

from exo.domain.advance import after
from exo.domain.decide import decide
from exo.domain.dispatch import dispatch
from exo.domain.messages.commands import Command
from exo.domain.messages.events import Event
from exo.domain.messages.reports import Report
from exo.domain.state import State


def react(state: State, message: Command | Report, now: float, new_id: Callable[[], str]) -> list[Event]:
    """The events that a message leads to, in order. Pure, as `decide` and `dispatch` are."""
    events = decide(state, message, now, new_id)
    if not events:
        return []
    return [*events, *dispatch(after(state, events, now), now, new_id)]
