"""`/v1/responses`: items in, items out, and the events that tell of them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from exo.api.generations.answer import GivenPiece
from exo.api.generations.event_frames import EventFrames
from exo.api.generations.event_ids import EventId, EventNumbers
from exo.api.http.body_errors import validation_problem
from exo.api.openai.responses.events import ResponseWriter
from exo.api.openai.responses.ids import RESPONSE_PREFIX
from exo.api.openai.responses.records import ResponseRecord
from exo.api.openai.responses.requests import ResponseRequest
from exo.api.openai.responses.stored_progress import JUST_ASKED, progress_by
from exo.domain.ids import ModelId, TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import ChunkGenerated, EndPiece, Piece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.messages.requests import ChatMessage, GenerationRequest
from exo.domain.sampling import FinishReason, Timings, Usage
from exo.domain.state import State

TASK = TaskId("5f3c761a2d954437acea7706d76fc43d")
CREATED = 1796010387
CALL = ToolCallPiece(index=0, id="call_1", name="get_weather", arguments='{"city": "Oslo"}')
USAGE = Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=2, reasoning_tokens=1)


def record(**fields: object) -> ResponseRecord:
    request = ResponseRequest.model_validate({"model": "m", "input": "hi", **fields})
    return ResponseRecord(TASK, CREATED, ModelId("owner/model"), request)


def end(reason: FinishReason = "stop", code: str = "", error: str = "") -> EndPiece:
    return EndPiece(finish_reason=reason, usage=USAGE, timings=Timings(), code=code, error=error)


def stream(pieces: Sequence[GivenPiece | EndPiece], seen: int = -1, **fields: object) -> list[str]:
    numbers = EventNumbers(RESPONSE_PREFIX, EventId(TASK, CREATED, (seen,)))
    frames = EventFrames(ResponseWriter(record(**fields)), numbers).frames([(0, piece) for piece in pieces])
    return frames.decode().split("\n\n")[:-1]


def events(pieces: Sequence[GivenPiece | EndPiece], **fields: object) -> list[dict[str, Any]]:
    return [json.loads(event.partition("data: ")[2]) for event in stream(pieces, **fields)]


def types(pieces: Sequence[GivenPiece | EndPiece]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events(pieces)]


ALL = [ReasoningPiece(text="hm"), TextPiece(text="a"), TextPiece(text="b"), CALL, end("tool_calls")]


def test_a24_each_text_and_call_is_an_item_with_events_from_its_beginning_to_its_end() -> None:
    text = ["output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done"]
    reasoning = ["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"]
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    done = ["content_part.done", "output_item.done"]
    assert types(ALL) == ["created", "in_progress", *reasoning, *done, *text, *done, *call, "completed"]


def test_a24_sequence_numbers_grow_by_one_and_are_those_of_the_ids() -> None:
    numbers = [event["sequence_number"] for event in events(ALL)]
    assert numbers == list(range(len(numbers)))
    ids = [event.partition("\n")[0].rpartition("-")[2] for event in stream(ALL)]
    assert ids == [str(number) for number in numbers]


@pytest.mark.parametrize("seen", range(-1, 20, 3))
def test_a24_after_any_event_come_the_rest_byte_for_byte(seen: int) -> None:
    assert stream(ALL, seen) == stream(ALL)[seen + 1 :]


def test_the_last_event_has_the_whole_response() -> None:
    response = events(ALL, temperature=0.5)[-1]["response"]
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    assert response["output"][1]["content"][0]["text"] == "ab"
    assert response["output"][2]["arguments"] == '{"city": "Oslo"}'
    assert response["status"] == "completed"
    assert response["temperature"] == 0.5
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 12,
    }


def test_what_the_limit_cut_off_is_incomplete() -> None:
    *_, item, last = events([TextPiece(text="a"), end("length")])
    assert item["item"]["status"] == "incomplete"
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a6_a_failure_tells_what_there_was_and_why() -> None:
    last = events([TextPiece(text="a"), end("error", "runner_failed", "the runner died")])[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "the runner died", "type": "runner_failed"}
    assert last["response"]["output"][0]["content"][0]["text"] == "a"


def test_logprobs_are_told_beside_their_text() -> None:
    told = TokenLogprobs(token="a", logprob=-0.5, bytes=(97,), top_logprobs=())
    delta = next(event for event in events([TextPiece(text="a", logprobs=(told,)), end()]) if "delta" in event)
    assert delta["logprobs"] == [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]


def progress(pieces: Sequence[Piece], now: float = CREATED + JUST_ASKED) -> tuple[str, int]:
    chunks = [ChunkGenerated(task_id=TASK, index=index, piece=piece) for index, piece in enumerate(pieces)]
    found = progress_by(State(), chunks, record(), now)
    return found.status, len(found.output)


def test_what_the_chunks_tell_of_a_stored_response() -> None:
    assert progress(ALL) == ("completed", 3)
    assert progress([TextPiece(text="a"), end("cancelled")]) == ("cancelled", 1)
    assert progress([], CREATED + 1) == ("queued", 0)
    assert progress([TextPiece(text="a")]) == ("failed", 1)


# The request


def request(**fields: object) -> GenerationRequest:
    return ResponseRequest.model_validate_json(json.dumps({"model": "m", "input": "hi", **fields})).to_domain(())


def test_instructions_come_first_and_hold_for_one_response() -> None:
    earlier = (ChatMessage(role="user", content="before"),)
    body = ResponseRequest.model_validate({"model": "m", "input": "hi", "instructions": "be brief"})
    said = [(message.role, message.content) for message in body.to_domain(earlier).messages]
    assert said == [("system", "be brief"), ("user", "before"), ("user", "hi")]


def test_an_earlier_answer_is_one_turn_however_many_items_it_has() -> None:
    items = events(ALL)[-1]["response"]["output"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
    answered, told, again = request(input=[*items, result, {"role": "user", "content": "so?"}]).messages
    assert (answered.role, answered.content, answered.reasoning) == ("assistant", "ab", "hm")
    assert [call.id for call in answered.tool_calls] == ["call_1"]
    assert (told.role, told.content, told.tool_call_id) == ("tool", "rain", "call_1")
    assert again.content == "so?"


def refusal(**fields: object) -> tuple[str, str | None]:
    with pytest.raises(ValidationError) as refused:
        request(**fields)
    problem = validation_problem(refused.value.errors(include_url=False))
    return problem.code, problem.param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, None),
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"prompt": {"id": "p"}}, "prompt"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(fields: dict[str, object], param: str | None) -> None:
    code, named = refusal(**fields)
    assert code == "unsupported_parameter"
    assert named is not None
    assert param in (None, named)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"background": True, "store": False}, "background"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "text", "name": "x"}}}, "text.format.name"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    assert refusal(**fields) == ("invalid_request", param)


def test_a_tool_that_is_named_is_called_once() -> None:
    tools = [{"type": "function", "name": "a", "parameters": None, "strict": True}]
    asked = request(tools=tools, tool_choice={"type": "function", "name": "a"})
    assert (asked.tool_choice, asked.tool_name, asked.parallel_tool_calls) == ("required", "a", False)
    assert asked.tools[0].strict is True
