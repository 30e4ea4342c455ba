"""The ids of a stream's events, and a stream that goes on after one of them."""

import json

import pytest

from exo.api.generations.choices import Chosen
from exo.api.generations.event_frames import EventFrames
from exo.api.generations.event_ids import EventId, EventNumbers, before_all, parse_event_id
from exo.api.generations.generation import Item, Note
from exo.api.openai.chat_answers import ID_PREFIX, ChunkWriter
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import Timings, Usage
from exo.errors import Rejected

TASK = TaskId("5f3c761a2d954437acea7706d76fc43d")
CREATED = 1796010387
ITEMS: list[Item] = [
    ReasoningPiece(text="hm"),
    TextPiece(text="a"),
    ToolCallPiece(index=0, id="call_1", name="get_weather", arguments='{"city": "Oslo"}'),
    EndPiece(finish_reason="tool_calls", usage=Usage(), timings=Timings()),
]


def stream(items: list[Item], seen: int = -1) -> list[str]:
    """The events that a client gets who has all up to the number `seen`."""
    return stream_of([(0, item) for item in items], EventId(TASK, CREATED, (seen,)))


def stream_of(items: list[Chosen], seen: EventId) -> list[str]:
    """As `stream`, of as many choices as `seen` tells of."""
    writer = ChunkWriter(TASK, CREATED, ModelId("owner/model"), len(seen.numbers), wants_usage=True)
    return EventFrames(writer, EventNumbers(ID_PREFIX, seen)).frames(items).decode().split("\n\n")[:-1]


def id_of(event: str) -> EventId:
    return parse_event_id(event.partition("\n")[0].removeprefix("id: "), ID_PREFIX)


def test_every_event_has_an_id_and_they_count() -> None:
    assert [id_of(event) for event in stream(ITEMS)] == [EventId(TASK, CREATED, (number,)) for number in range(8)]


@pytest.mark.parametrize("seen", range(-1, 8))
def test_after_any_event_come_the_rest_byte_for_byte(seen: int) -> None:
    assert stream(ITEMS, seen) == stream(ITEMS)[seen + 1 :]


def data_of(events: list[str]) -> list[str]:
    return [event.partition("\ndata: ")[2] for event in events]


def index_of(data: str) -> int | None:
    """Of the choice that an event is of; None where it is of all."""
    choices = json.loads(data)["choices"] if data != "[DONE]" else []
    return choices[0]["index"] if choices else None


@pytest.mark.parametrize("cut", range(20))
@pytest.mark.parametrize("again", [(0, 1, 2), (2, 1, 0)])
def test_a21_after_any_event_come_the_rest_of_all_choices_in_whatever_order_these_come_then(
    cut: int, again: tuple[int, ...]
) -> None:
    none = before_all(TASK, CREATED, 3)
    whole = stream_of([(index, item) for item in ITEMS for index in (1, 0, 2)], none)
    assert len(whole) == 20
    begun = whole[: cut + 1]
    rest = stream_of([(index, item) for index in again for item in ITEMS], id_of(begun[-1]))
    for index in (0, 1, 2, None):
        expected = [data for data in data_of(whole) if index_of(data) == index]
        assert [data for data in data_of(begun + rest) if index_of(data) == index] == expected
    for second_cut, event in enumerate(rest):
        last = stream_of([(index, item) for item in ITEMS for index in (2, 0, 1)], id_of(event))
        assert sorted(data_of(rest[: second_cut + 1] + last)) == sorted(data_of(rest))


def test_a_sign_of_life_has_no_number_and_is_not_left_out() -> None:
    assert stream([Note("prefill"), *ITEMS], 0) == [": prefill", *stream(ITEMS)[1:]]


def test_an_error_has_no_number_since_it_may_stand_in_place_of_what_a_client_comes_back_for() -> None:
    end = EndPiece(finish_reason="error", usage=Usage(), timings=Timings(), code="node_lost", error="gone")
    *before, error, done = stream([ITEMS[1], end])
    assert before == stream([ITEMS[1]])
    assert error.startswith('data: {"error":')
    assert done == "data: [DONE]"


@pytest.mark.parametrize(
    "text",
    [
        "17",
        f"chatcmpl-{TASK}-6919c3a2-.",
        f"chatcmpl-{TASK}-6919c3a2-1.-2",
        "resp_" + TASK + "-6919c3a2-1",
        f"chatcmpl-{TASK}-6919c3a2-",
        f"chatcmpl-{TASK}-6919c3a2--1",
        "chatcmpl-*",
    ],
)
def test_what_is_no_id_of_the_endpoint_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="there is no event") as refused:
        parse_event_id(text, ID_PREFIX)
    assert refused.value.code == "event_not_found"
