"""Answers as Ollama's JSON, whole and as lines."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from pydantic import TypeAdapter

from exo.api.generations.answer import Answer, GivenPiece
from exo.api.generations.generation import Item, Note
from exo.api.ollama.answers import Writer, all_of, timestamp
from exo.api.ollama.lines import Lines
from exo.api.ollama.shapes import ChatAnswer, GenerateAnswer
from exo.domain.logprobs import TokenLogprob, TokenLogprobs
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import FinishReason, Timings, Usage

ASKED = 1_796_010_387.25
NOW = ASKED + 2
LOADING = 0.75
HEAD = {"model": "m:latest", "created_at": "2026-11-30T03:46:29.250000Z"}
FIGURES = {
    "total_duration": 2_000_000_000,
    "load_duration": 750_000_000,
    "prompt_eval_count": 10,
    "prompt_eval_duration": 250_000_000,
    "eval_count": 7,
    "eval_duration": 500_000_000,
}
CALL = ToolCallPiece(index=1, id="call_1", name="get_weather", arguments='{"city": "Oslo"}')
CALL_JSON = {"id": "call_1", "function": {"index": 1, "name": "get_weather", "arguments": {"city": "Oslo"}}}
LOGPROBS = TokenLogprobs(
    token="a", bytes=(97,), logprob=-0.5, top_logprobs=(TokenLogprob(token="b", bytes=(98,), logprob=-1.0),)
)

Kind = Literal["chat", "generate"]
SHAPES = {"chat": TypeAdapter[Any](ChatAnswer), "generate": TypeAdapter[Any](GenerateAnswer)}
"""What the OpenAPI document says of an answer in one piece."""


def end(reason: FinishReason = "stop", code: str = "") -> EndPiece:
    usage = Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=7)
    timings = Timings(wait=0.5, prefill=0.25, decode=0.5)
    return EndPiece(finish_reason=reason, usage=usage, timings=timings, code=code, error="no luck" if code else "")


def whole(kind: Kind, *pieces: GivenPiece, reason: FinishReason = "stop") -> dict[str, Any]:
    written = Writer(kind, "m:latest", ASKED).end(end(reason), NOW, LOADING, all_of(Answer(list(pieces))))
    assert b"\n" not in written
    told = json.loads(written)
    SHAPES[kind].validate_json(written)
    return told


def lines(kind: Kind, *items: Item) -> Sequence[dict[str, Any]]:
    written = Lines(Writer(kind, "m:latest", ASKED), lambda: LOADING, lambda: NOW).frames([(0, item) for item in items])
    assert written.endswith(b"\n")
    return [json.loads(line) for line in written.removesuffix(b"\n").split(b"\n")]


def test_a_chats_answer_has_its_message_and_its_figures() -> None:
    message = {"role": "assistant", "content": "yes\nno", "thinking": "hm", "tool_calls": [CALL_JSON]}
    assert whole("chat", ReasoningPiece(text="hm"), TextPiece(text="yes\nno"), CALL) == {
        **HEAD,
        "message": message,
        "done": True,
        "done_reason": "stop",
        **FIGURES,
    }


def test_a_prompts_answer_is_a_text() -> None:
    answer = whole("generate", ReasoningPiece(text="hm"), TextPiece(text="yes"), reason="length")
    assert answer == {
        **HEAD,
        "response": "yes",
        "thinking": "hm",
        "done": True,
        "done_reason": "length",
        **FIGURES,
    }


def test_a_stream_has_a_line_for_each_piece_and_the_figures_at_its_end() -> None:
    told = lines("chat", ReasoningPiece(text="hm"), TextPiece(text="yes"), CALL, end("tool_calls"))
    assert [line.pop("done") for line in told] == [False, False, False, True]
    assert [line.pop("message") for line in told] == [
        {"role": "assistant", "content": "", "thinking": "hm"},
        {"role": "assistant", "content": "yes"},
        {"role": "assistant", "content": "", "tool_calls": [CALL_JSON]},
        {"role": "assistant", "content": ""},
    ]
    assert told[:3] == [HEAD] * 3
    assert told[3] == {**HEAD, "done_reason": "stop", **FIGURES}


def test_a_sign_of_life_is_a_line_that_says_nothing() -> None:
    assert lines("generate", Note("waiting")) == [{**HEAD, "response": "", "done": False}]


@pytest.mark.parametrize(("reason", "code"), [("error", "engine_error"), ("cancelled", "cancelled")])
def test_a6_a_failure_is_the_last_line_and_no_end(reason: FinishReason, code: str) -> None:
    assert lines("chat", TextPiece(text="a"), end(reason, code))[1:] == [{"error": "no luck"}]


def test_logprobs_stand_beside_the_text() -> None:
    told = {
        "token": "a",
        "bytes": [97],
        "logprob": -0.5,
        "top_logprobs": [{"token": "b", "bytes": [98], "logprob": -1.0}],
    }
    piece = TextPiece(text="a", logprobs=(LOGPROBS,))
    assert lines("chat", piece)[0]["logprobs"] == [told]
    assert whole("chat", piece)["logprobs"] == [told]
    assert "logprobs" not in whole("chat", TextPiece(text="a"))


@pytest.mark.parametrize("reason", ["load", "unload"])
def test_where_no_answer_was_asked_for_there_is_none(reason: Literal["load", "unload"]) -> None:
    told = json.loads(Writer("chat", "m:latest", ASKED).no_answer(reason, NOW))
    assert told == {**HEAD, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason}


def test_times_are_in_utc() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000000Z"
