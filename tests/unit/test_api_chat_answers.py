"""The frames of a stream, and the whole answer."""

import json
import re
from collections.abc import Sequence

import pytest

from exo.api.generations.answer import Answer
from exo.api.generations.choices import Chosen
from exo.api.generations.event_frames import EventFrames
from exo.api.generations.event_ids import EventNumbers, before_all
from exo.api.generations.generation import Item, Note
from exo.api.openai.answer import message_of
from exo.api.openai.chat_answers import ChunkWriter, completion
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import FinishReason, Timings, Usage

USAGE = Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=2)
USAGE_JSON = {
    "prompt_tokens": 5,
    "completion_tokens": 7,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def end(reason: FinishReason = "stop", code: str = "", error: str = "") -> EndPiece:
    return EndPiece(finish_reason=reason, usage=USAGE, timings=Timings(), code=code, error=error)


def stream(batches: Sequence[Sequence[Item]], wants_usage: bool = False) -> list[str]:
    """The events of a stream without ids, each with its line breaks taken off."""
    return stream_of([[(0, item) for item in batch] for batch in batches], 1, wants_usage)


def stream_of(batches: Sequence[Sequence[Chosen]], count: int, wants_usage: bool = False) -> list[str]:
    """As `stream`, of so many choices."""
    writer = ChunkWriter(TaskId("t1"), 1700000000, ModelId("owner/model"), count, wants_usage)
    stream = EventFrames(writer, EventNumbers("chatcmpl-", before_all(TaskId("t1"), 1700000000, count)))
    text = re.sub("^id: .*\n", "", b"".join(stream.frames(batch) for batch in batches).decode(), flags=re.MULTILINE)
    assert text.endswith("\n\n")
    return text.removesuffix("\n\n").split("\n\n")


def chunks(events: Sequence[str]) -> list[dict[str, object]]:
    return [json.loads(event.removeprefix("data: ")) for event in events if event.startswith("data: {")]


def test_a1_every_event_is_data_and_done_comes_once_at_the_end() -> None:
    events = stream([[TextPiece(text="a\nb")], [TextPiece(text="c"), end()]])
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    assert [event for event in events if event == "data: [DONE]"] == events[-1:]


def test_a2_the_first_delta_has_the_role_and_one_chunk_the_finish_reason() -> None:
    choices = [chunk["choices"][0] for chunk in chunks(stream([[TextPiece(text="a")], [TextPiece(text="b"), end()]]))]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert {choice["index"] for choice in choices} == {0}


def test_a2_an_empty_answer_has_a_role_too() -> None:
    choices = [chunk["choices"][0] for chunk in chunks(stream([[end("length")]]))]
    assert [choice["delta"] for choice in choices] == [{"role": "assistant", "content": ""}, {}]
    assert choices[-1]["finish_reason"] == "length"


def test_each_chunk_says_what_it_belongs_to() -> None:
    for chunk in chunks(stream([[TextPiece(text="a"), end()]], wants_usage=True)):
        assert {name: chunk[name] for name in ("id", "object", "created", "model")} == {
            "id": "chatcmpl-t1",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": "owner/model",
        }


@pytest.mark.parametrize("wants_usage", [True, False])
def test_a4_usage_comes_in_one_chunk_of_its_own_where_it_is_asked_for(wants_usage: bool) -> None:
    with_usage = [chunk for chunk in chunks(stream([[end()]], wants_usage)) if "usage" in chunk]
    assert [(chunk["choices"], chunk["usage"]) for chunk in with_usage] == [([], USAGE_JSON)] * wants_usage


@pytest.mark.parametrize("text", ['"quoted"\\', "line\r\nbreak\u2028", "😀", "\x00\x1f", "data: [DONE]\n\n"])
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    _, content, *_ = chunks(stream([[TextPiece(text=text), end()]]))
    assert content["choices"][0]["delta"]["content"] == text


def test_a6_an_error_ends_the_stream_without_a_finish_reason() -> None:
    events = stream([[TextPiece(text="a")], [end("error", "runner_failed", "the runner died")]], wants_usage=True)
    assert json.loads(events[-2].removeprefix("data: ")) == {
        "error": {"message": "the runner died", "type": "server_error", "param": None, "code": "runner_failed"}
    }
    assert events[-1] == "data: [DONE]"
    assert not any('"finish_reason":"' in event for event in events)


def test_a_sign_of_life_is_a_comment_of_one_line() -> None:
    events = stream([[Note("waiting for m:\n loading")], [end()]])
    assert events[0] == ": waiting for m: loading"


def test_a4_the_whole_answer_has_the_usage() -> None:
    answer = Answer([TextPiece(text="hel"), TextPiece(text="lo")])
    body = completion(TaskId("t1"), 1700000000, ModelId("m"), [(answer, end("length"))], with_logprobs=False)
    assert body == {
        "id": "chatcmpl-t1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "length"}],
        "usage": USAGE_JSON,
    }


CALL = ToolCallPiece(index=1, id="call_1", name="get_weather", arguments='{"city": "Oslo"}')


def test_a_call_is_named_before_its_arguments() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(stream([[CALL, end("tool_calls")]]))]
    opening = {"name": "get_weather", "arguments": ""}
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"tool_calls": [{"index": 1, "id": "call_1", "type": "function", "function": opening}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"city": "Oslo"}'}}]},
        {},
    ]


def test_reasoning_is_no_content() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(stream([[ReasoningPiece(text="hm"), end()]]))]
    assert deltas[1] == {"reasoning_content": "hm", "reasoning": "hm"}


def test_a_message_with_calls_and_no_text_has_no_content() -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    assert message_of(Answer([ReasoningPiece(text="h"), ReasoningPiece(text="m"), CALL])) == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "reasoning": "hm",
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    assert message_of(Answer([TextPiece(text=" "), CALL]))["content"] == " "
    assert message_of(Answer()) == {"role": "assistant", "content": ""}


def test_a21_each_choice_has_a_role_and_a_finish_of_its_own_and_the_usage_is_one() -> None:
    batches = [
        [(1, TextPiece(text="b")), (0, TextPiece(text="a"))],
        [(1, end("length")), (0, TextPiece(text="A"))],
        [(2, end()), (0, end())],
    ]
    events = stream_of(batches, 3, wants_usage=True)
    assert [event for event in events if event == "data: [DONE]"] == events[-1:]
    *told, last = chunks(events)
    choices = [chunk["choices"][0] for chunk in told]
    deltas = [[choice["delta"] for choice in choices if choice["index"] == index] for index in range(3)]
    role = {"role": "assistant", "content": ""}
    assert deltas == [[role, {"content": "a"}, {"content": "A"}, {}], [role, {"content": "b"}, {}], [role, {}]]
    reasons = [(choice["index"], choice["finish_reason"]) for choice in choices if choice["finish_reason"]]
    assert reasons == [(1, "length"), (2, "stop"), (0, "stop")]
    assert (last["choices"], last["usage"]) == ([], {**USAGE_JSON, "completion_tokens": 21, "total_tokens": 26})


def test_a21_a_choice_that_fails_ends_the_stream_of_all() -> None:
    batches = [[(0, TextPiece(text="a")), (1, end("error", "engine_error", "no"))]]
    events = stream_of(batches, 2)
    assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "engine_error"
    assert events[-1] == "data: [DONE]"
