"""A master that is delivered messages again, and starts anew whenever it likes, comes to the same State."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from cluster_histories import Step, histories, run
from hypothesis import given
from hypothesis import strategies as st

from exo.domain.fold import fold
from exo.domain.ids import MessageId
from exo.domain.invariants import violations
from exo.domain.messages.commands import Command
from exo.domain.messages.events import Entry, Recorded
from exo.domain.messages.reports import Report
from exo.domain.react import react
from exo.domain.state import State

Message = tuple[MessageId, Command | Report]


@dataclass
class Master:
    """What a leader does with its inbox, on a log that is a list: a message whose id led to events already is left."""

    log: list[Recorded] = field(default_factory=list[Recorded])
    state: State = field(default_factory=State)
    ids: "count[int]" = field(default_factory=count)
    seen: set[MessageId] = field(default_factory=set[MessageId])
    """What the table `inbox` holds: the messages that led to events."""

    def take(self, message: Message, now: float, recorded_units: int | None = None) -> None:
        """Decide on a message. `recorded_units`: it dies after so many units of events are in the log."""
        message_id, body = message
        if message_id in self.seen:
            return
        units = react(self.state, body, now, lambda: f"id{next(self.ids)}")
        for unit in units[:recorded_units]:
            for event in unit:
                entry = Entry(recorded_at=now, cause_id=message_id, source="tester", event=event)
                recorded = Recorded(position=self.state.position + 1, entry=entry)
                self.state = fold(self.state, recorded)
                assert violations(self.state) == []
                self.log.append(recorded)
                self.seen.add(message_id)

    def restart(self, snapshot_at: int) -> None:
        """Come back from a snapshot and the events after it, all read as text."""
        state = State()
        for recorded in self.log[:snapshot_at]:
            state = fold(state, recorded)
        state = State.model_validate_json(state.model_dump_json())
        for recorded in self.log[snapshot_at:]:
            state = fold(state, Recorded.model_validate_json(recorded.model_dump_json()))
        assert state.model_dump_json() == self.state.model_dump_json()
        self.state = state


def taken(messages: Iterable[Message]) -> Master:
    master = Master()
    for number, message in enumerate(messages):
        master.take(message, 1_700_000_000.0 + number)
    return master


def messages_of(history: Sequence[Step]) -> list[Message]:
    return [(message_id, body) for message_id, body, _ in run(history).messages]


@given(histories, st.data())
def test_what_is_delivered_again_among_others_messages_changes_nothing(
    history: list[Step], data: st.DataObject
) -> None:
    messages = messages_of(history)
    expected = taken(messages)
    master = Master()
    for number, message in enumerate(messages):
        master.take(message, 1_700_000_000.0 + number)
        for again in data.draw(st.lists(st.integers(0, number), max_size=2)):
            # A report that led to nothing is not remembered: it may come to apply later, and says what was seen.
            if led_to_events(master, messages[again]):
                master.take(messages[again], 1_700_000_000.0 + number)
    assert master.log == expected.log


@given(histories, st.data())
def test_starting_anew_anywhere_changes_nothing(history: list[Step], data: st.DataObject) -> None:
    messages = messages_of(history)
    expected = taken(messages)
    master = Master()
    for number, message in enumerate(messages):
        master.take(message, 1_700_000_000.0 + number)
        if data.draw(st.integers(0, 9)) == 0:
            master.restart(data.draw(st.integers(0, len(master.log))))
    assert master.log == expected.log
    assert master.state.model_dump_json() == expected.state.model_dump_json()


@given(histories, st.data())
def test_dying_between_two_events_leaves_a_sound_state_in_which_the_message_has_no_second_effect(
    history: list[Step], data: st.DataObject
) -> None:
    master = Master()
    for number, message in enumerate(messages_of(history)):
        now = 1_700_000_000.0 + number
        if data.draw(st.integers(0, 4)) == 0:
            master.take(message, now, recorded_units=data.draw(st.integers(0, 2)))
            master.restart(data.draw(st.integers(0, len(master.log))))
            before = len(master.log)
            decided = led_to_events(master, message)
            master.take(message, now)
            assert not decided or len(master.log) == before
        else:
            master.take(message, now)
        assert violations(master.state) == []


def led_to_events(master: Master, message: Message) -> bool:
    return message[0] in master.seen
