"""Completions: bodies that are accepted and refused, logprobs, and the frames of a stream."""

import json

import pytest
from pydantic import ValidationError

from exo.api.generations.answer import Answer
from exo.api.generations.event_frames import EventFrames
from exo.api.generations.event_ids import EventNumbers, before_all
from exo.api.http.body_errors import validation_problem
from exo.api.http.problem import Problem
from exo.api.openai.completion_answers import CompletionWriter, completion
from exo.api.openai.completion_logprobs import CompletionLogprobs
from exo.api.openai.completion_requests import CompletionRequest
from exo.domain.constraint import Regex
from exo.domain.ids import ModelId, TaskId
from exo.domain.logprobs import TokenLogprob, TokenLogprobs
from exo.domain.messages.chunks import EndPiece, TextPiece
from exo.domain.sampling import Timings, Usage

END = EndPiece(finish_reason="length", usage=Usage(prompt_tokens=5, completion_tokens=2), timings=Timings())


def parsed(**fields: object) -> CompletionRequest:
    return CompletionRequest.model_validate_json(json.dumps({"model": "m", "prompt": "hi", **fields}))


def refused(**fields: object) -> Problem:
    with pytest.raises(ValidationError) as caught:
        parsed(**fields)
    return validation_problem(caught.value.errors(include_url=False))


def told(raw: bytes, logprob: float, *others: TokenLogprob) -> TokenLogprobs:
    return TokenLogprobs(token=raw.decode(errors="replace"), bytes=tuple(raw), logprob=logprob, top_logprobs=others)


@pytest.mark.parametrize(
    ("prompt", "raw"),
    [
        ("hi", ["hi"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [(1, 2)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
        (["a", [3]], ["a", (3,)]),
    ],
)
def test_a_prompt_is_a_text_tokens_or_several_of_them(prompt: object, raw: list[object]) -> None:
    payloads = parsed(prompt=prompt).to_domain()
    assert [payload.prompt for payload in payloads] == raw
    assert all(payload.messages == () for payload in payloads)


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt[0]"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        (["a", ""], "prompt[1]"),
        (None, "prompt"),
        (5, "prompt"),
        ([1, "a"], "prompt[0]"),
        ([1.5], "prompt[0]"),
        ([-1], "prompt[0]"),
        ([True], "prompt[0]"),
        ([2**31], "prompt[0]"),
        (["a"] * 129, "prompt"),
    ],
)
def test_a20_what_is_no_prompt_is_refused(prompt: object, param: str) -> None:
    problem = refused(prompt=prompt)
    assert (problem.http_status, problem.param) == (400, param)


def test_the_default_of_max_tokens_is_sixteen() -> None:
    (payload,) = parsed().to_domain()
    assert payload.params.max_tokens == 16
    (payload,) = parsed(max_tokens=3).to_domain()
    assert payload.params.max_tokens == 3


def test_a21_each_prompt_has_its_choices_side_by_side() -> None:
    payloads = parsed(prompt=["a", "b"], n=2, seed=1).to_domain()
    assert [payload.prompt for payload in payloads] == ["a", "a", "b", "b"]
    assert [payload.params.seed for payload in payloads[:2]] == [payload.params.seed for payload in payloads[2:]]
    assert payloads[0].params.seed != payloads[1].params.seed
    assert refused(prompt=["a", "b"], n=65).param == "prompt"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "!"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"n": 2, "best_of": 3}, "best_of"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"messages": []}, "messages"),
        ({"tools": []}, "tools"),
    ],
)
def test_what_would_be_ignored_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    problem = refused(**fields)
    assert (problem.http_status, problem.param, problem.code) == (400, param, "unsupported_parameter")


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", 0), ("logprobs", True), ("logprobs", 21), ("stop", ""), ("temperature", 3), ("n", 129)],
)
def test_wrong_types_and_ranges_are_named(name: str, value: object) -> None:
    assert (refused(**{name: value}).param or "").startswith(name)


def test_what_asks_for_nothing_is_accepted() -> None:
    nothing = {"suffix": None, "best_of": 1, "echo": False, "logprobs": None, "user": "me", "n": 1, "stream": False}
    assert parsed(**nothing).to_domain() == parsed().to_domain()
    assert parsed(best_of=2, n=2).to_domain() == parsed(n=2).to_domain()


def test_what_chooses_tokens_is_as_for_chat() -> None:
    (payload,) = parsed(echo=True, stop="x", logit_bias={"7": 1}, guided_regex="a+", logprobs=None).to_domain()
    assert (payload.echo, payload.params.stop, payload.params.logit_bias) == (True, ("x",), ((7, 1.0),))
    assert payload.params.constraint == Regex(pattern="a+", param="guided_regex")
    (payload,) = parsed(logprobs=0).to_domain()
    assert payload.params.logprobs == 0


def test_logprobs_are_four_lists_with_offsets_in_characters() -> None:
    other = TokenLogprob(token="x", bytes=(120,), logprob=-2.0)
    emoji = "😀".encode()
    tokens = [told("é".encode(), -0.5, other), told(emoji[:2], -1.0), told(emoji[2:], -1.5), told(b"!", -0.25)]
    teller = CompletionLogprobs()
    parts = [teller.part(tokens[:2]), teller.part(tokens[2:])]
    assert parts == [
        {
            "tokens": ["é", "bytes:\\xf0\\x9f"],
            "token_logprobs": [-0.5, -1.0],
            "top_logprobs": [{"x": -2.0, "é": -0.5}, {"bytes:\\xf0\\x9f": -1.0}],
            "text_offset": [0, 1],
        },
        {
            "tokens": ["bytes:\\x98\\x80", "!"],
            "token_logprobs": [-1.5, -0.25],
            "top_logprobs": [{"bytes:\\x98\\x80": -1.5}, {"!": -0.25}],
            "text_offset": [1, 2],
        },
    ]


def test_the_whole_answer_names_each_choice() -> None:
    answers = [(Answer([TextPiece(text="a"), TextPiece(text="b")]), END), (Answer([TextPiece(text="c")]), END)]
    body = completion(TaskId("t1"), 5, ModelId("m"), answers, 1, with_logprobs=False)
    assert body == {
        "id": "cmpl-t1",
        "object": "text_completion",
        "created": 5,
        "model": "m",
        "choices": [
            {"index": 0, "text": "ab", "finish_reason": "length"},
            {"index": 1, "text": "c", "finish_reason": "length"},
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 4,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_a_stream_has_text_ends_usage_and_done() -> None:
    writer = CompletionWriter(TaskId("t1"), 5, ModelId("m"), 2, 1, with_logprobs=True, wants_usage=True)
    items = [(1, TextPiece(text="b", logprobs=(told(b"b", -1.0),))), (0, END), (1, END)]
    frames = EventFrames(writer, EventNumbers("cmpl-", before_all(TaskId("t1"), 5, 2))).frames(items)
    *events, done, rest = [event.partition("data: ")[2] for event in frames.decode().split("\n\n")]
    assert (done, rest) == ("[DONE]", "")
    text, first, second, usage = map(json.loads, events)
    assert text["choices"][0]["text"] == "b"
    assert text["choices"][0]["logprobs"]["tokens"] == ["b"]
    assert [end["choices"][0] for end in (first, second)] == [
        {"index": index, "text": "", "finish_reason": "length"} for index in range(2)
    ]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 14)
