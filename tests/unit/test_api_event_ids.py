"""The ids of a stream's events, and a stream that goes on after one of them."""

import pytest

from exo.api.generations.event_ids import EventId, EventNumbers, parse_event_id
from exo.api.generations.generation import Item, Note
from exo.api.generations.streaming import EventFrames
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
    writer = ChunkWriter(TASK, CREATED, ModelId("owner/model"), 1, wants_usage=True)
    numbers = EventNumbers(ID_PREFIX, EventId(TASK, CREATED, seen))
    text = EventFrames(writer, numbers).frames([(0, item) for item in items]).decode()
    return text.split("\n\n")[:-1]


def id_of(event: str) -> EventId:
    return parse_event_id(event.partition("\n")[0].removeprefix("id: "), ID_PREFIX)


def test_every_event_has_an_id_and_they_count() -> None:
    assert [id_of(event) for event in stream(ITEMS)] == [EventId(TASK, CREATED, number) for number in range(8)]


@pytest.mark.parametrize("seen", range(-1, 8))
def test_after_any_event_come_the_rest_byte_for_byte(seen: int) -> None:
    assert stream(ITEMS, seen) == stream(ITEMS)[seen + 1 :]


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
    ["17", "resp_" + TASK + "-6919c3a2-1", f"chatcmpl-{TASK}-6919c3a2-", f"chatcmpl-{TASK}-6919c3a2--1", "chatcmpl-*"],
)
def test_what_is_no_id_of_the_endpoint_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="there is no event") as refused:
        parse_event_id(text, ID_PREFIX)
    assert refused.value.code == "event_not_found"
