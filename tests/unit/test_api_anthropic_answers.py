"""Anthropic's message, and the events of its stream."""

import json
from collections.abc import Sequence

import pytest

from exo.api.anthropic.answers import message
from exo.api.anthropic.events import EventWriter
from exo.api.generations.answer import Answer, GivenPiece
from exo.api.generations.generation import Item, Note
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import FinishReason, Timings, Usage

MAX_TOKENS = 7
USAGE = Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=7, reasoning_tokens=2)
USAGE_JSON = {
    "input_tokens": 6,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 4,
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 2},
}
CALL = ToolCallPiece(index=0, id="call_1", name="get_weather", arguments='{"city": "Oslo"}')


def end(reason: FinishReason = "stop", stop_sequence: str | None = None, code: str = "", error: str = "") -> EndPiece:
    return EndPiece(
        finish_reason=reason, usage=USAGE, timings=Timings(), stop_sequence=stop_sequence, code=code, error=error
    )


def whole(pieces: Sequence[GivenPiece], last: EndPiece, *, shows_thinking: bool = True) -> dict[str, object]:
    return dict(message(TaskId("t1"), ModelId("m"), Answer(list(pieces)), last, MAX_TOKENS, shows_thinking))


def frames(*items: Item, shows_thinking: bool = True) -> list[str]:
    """Each item comes by itself; the events, and comments, of the stream."""
    writer = EventWriter(TaskId("t1"), ModelId("m"), "r1", max_tokens=MAX_TOKENS, shows_thinking=shows_thinking)
    return b"".join(writer.frames([(0, item)]) for item in items).decode().removesuffix("\n\n").split("\n\n")


def events(*items: Item, shows_thinking: bool = True) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for frame in frames(*items, shows_thinking=shows_thinking):
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_message_has_everything() -> None:
    assert whole([TextPiece(text="hel"), TextPiece(text="lo")], end()) == {
        "id": "msg_t1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE_JSON,
    }


def test_blocks_come_in_the_order_of_what_the_model_wrote() -> None:
    pieces = [ReasoningPiece(text="h"), ReasoningPiece(text="m"), TextPiece(text="a"), CALL, CALL, TextPiece(text="b")]
    tool_use = {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}}
    assert whole(pieces, end("tool_calls"))["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "exo-t1"},
        {"type": "text", "text": "a"},
        tool_use,
        tool_use,
        {"type": "text", "text": "b"},
    ]


def test_thoughts_can_be_left_out() -> None:
    pieces = [ReasoningPiece(text="hm"), TextPiece(text="a")]
    assert whole(pieces, end(), shows_thinking=False)["content"] == [
        {"type": "thinking", "thinking": "", "signature": "exo-t1"},
        {"type": "text", "text": "a"},
    ]


@pytest.mark.parametrize(
    ("last", "reason", "sequence"),
    [
        (end("stop"), "end_turn", None),
        (end("stop", "END"), "stop_sequence", "END"),
        (end("length"), "max_tokens", None),
        (end("tool_calls"), "tool_use", None),
        (end("tool_calls", "END"), "tool_use", None),
    ],
)
def test_a8_why_it_ended(last: EndPiece, reason: str, sequence: str | None) -> None:
    body = whole([TextPiece(text="a")], last)
    assert (body["stop_reason"], body["stop_sequence"]) == (reason, sequence)
    delta = events(TextPiece(text="a"), last)[-2]
    assert delta["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_a25_events_come_in_order_and_each_block_is_closed() -> None:
    found = events(ReasoningPiece(text="h"), ReasoningPiece(text="m"), TextPiece(text="a"), CALL, end("tool_calls"))
    start, *blocks, delta, stop = found
    empty = {**USAGE_JSON, "input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
    empty["output_tokens_details"] = {"thinking_tokens": 0}
    assert start == {
        "type": "message_start",
        "message": {
            "id": "msg_t1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": empty,
        },
    }
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    tool_use: dict[str, object] = {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}
    assert blocks == [
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "h"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "exo-t1"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": tool_use},
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'},
        },
        {"type": "content_block_stop", "index": 2},
    ]
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": USAGE_JSON,
    }
    assert stop == {"type": "message_stop"}


def test_an_answer_that_the_context_ends_before_its_limit_says_so() -> None:
    cut = EndPiece(finish_reason="length", usage=USAGE.replaced({"completion_tokens": 6}), timings=Timings())
    assert whole([], cut)["stop_reason"] == "model_context_window_exceeded"
    assert whole([], end("length"))["stop_reason"] == "max_tokens"


def test_omitted_thoughts_are_a_block_with_a_signature_alone() -> None:
    found = events(ReasoningPiece(text="hm"), TextPiece(text="a"), end(), shows_thinking=False)
    assert [event["type"] for event in found[:4]] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ]
    assert found[2]["delta"] == {"type": "signature_delta", "signature": "exo-t1"}


def test_an_answer_without_a_word_has_no_blocks() -> None:
    assert [event["type"] for event in events(end())] == ["message_start", "message_delta", "message_stop"]
    assert whole([], end())["content"] == []


def test_a_sign_of_life_is_a_ping_after_the_message_began() -> None:
    assert frames(Note("loading m"), TextPiece(text="a"))[:3] == [
        frames(end())[0],
        ": loading m",
        'event: ping\ndata: {"type":"ping"}',
    ]


def test_a6_a_failure_is_the_last_event_and_no_end_of_a_message() -> None:
    found = events(TextPiece(text="a"), end("error", code="runner_failed", error="the runner died"))
    assert found[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": "the runner died", "details": {"error_code": "runner_failed"}},
        "request_id": "r1",
    }
    assert not {"message_delta", "message_stop"} & {str(event["type"]) for event in found}
