"""Bodies of Ollama's endpoints: what is accepted, what it becomes, and what is refused by name."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from exo.api.http.body_errors import validation_problem
from exo.api.http.problem import Problem
from exo.api.ollama.durations import FOREVER, Duration
from exo.api.ollama.embed_requests import EmbeddingsRequest, EmbedRequest
from exo.api.ollama.named import Named
from exo.api.ollama.requests import ChatRequest, GenerateRequest
from exo.domain.constraint import JsonObject, JsonSchema
from exo.domain.embedding import EmbeddingParams
from exo.domain.messages.requests import ChatMessage, GenerationRequest, ToolCall
from exo.domain.sampling import INTEGER_MOST, SamplingParams

USER = [{"role": "user", "content": "hi"}]
SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: dict[str, object] = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
CALL: dict[str, object] = {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
SECONDS: TypeAdapter[float | None] = TypeAdapter(Duration)


def chat(**fields: object) -> GenerationRequest:
    return ChatRequest.model_validate_json(json.dumps({"model": "m", "messages": USER, **fields})).to_generation()


def generate(**fields: object) -> GenerationRequest:
    return GenerateRequest.model_validate_json(json.dumps({"model": "m", "prompt": "hi", **fields})).to_generation()


def embed(**fields: object) -> EmbeddingParams:
    return EmbedRequest.model_validate_json(json.dumps({"model": "m", "input": "hi", **fields})).to_domain().params


def params(**options: object) -> SamplingParams:
    return chat(options=options).params


def messages(*given: object) -> tuple[ChatMessage, ...]:
    return chat(messages=given).messages


def refused(body: type[ChatRequest | GenerateRequest | EmbedRequest | Named], **fields: object) -> Problem:
    with pytest.raises(ValidationError) as caught:
        body.model_validate_json(json.dumps({"model": "m", **fields}))
    return validation_problem(caught.value.errors(include_url=False))


def test_where_nothing_is_said_ollamas_defaults_hold() -> None:
    expected = SamplingParams(
        temperature=0.8,
        top_k=40,
        top_p=0.9,
        repetition_penalty=1.1,
        repetition_context=64,
        stops_at_context=True,
    )
    assert params() == expected
    assert chat(options=None, format=None, think=None, tools=None, logprobs=None) == chat()


def test_each_option_reaches_the_engine() -> None:
    asked = params(
        temperature=0,
        top_k=0,
        top_p=0.5,
        min_p=0.1,
        repeat_penalty=1.3,
        repeat_last_n=7,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        seed=42,
        num_predict=9,
        num_ctx=100,
        stop=["END"],
    )
    assert asked == SamplingParams(
        temperature=0,
        top_k=0,
        top_p=0.5,
        min_p=0.1,
        repetition_penalty=1.3,
        repetition_context=7,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        seed=42,
        max_tokens=9,
        context=100,
        stops_at_context=True,
        stop=("END",),
    )


@pytest.mark.parametrize("unlimited", [-2, -1, 0, None])
def test_an_answer_may_be_as_long_as_the_context_has_room(unlimited: int | None) -> None:
    assert params(num_predict=unlimited).max_tokens is None


def test_seeds_and_windows_that_stand_for_something_else() -> None:
    assert params(seed=-1).seed is None
    assert params(seed=0).seed == 0
    assert params(seed=-2).seed == 2**64 - 2
    assert params(repeat_last_n=0).repetition_penalty == 1
    assert params(repeat_last_n=-1).repetition_context == INTEGER_MOST
    assert params(top_k=-1).top_k == 0
    assert 0 < params(top_p=0).top_p < 0.001


@pytest.mark.parametrize(
    "options",
    [
        {"mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "tfs_z": 1, "typical_p": 1.0},
        {"num_gpu": -1, "main_gpu": 0, "low_vram": False, "num_thread": 0, "num_batch": 512, "numa": False},
        {"use_mmap": True, "use_mlock": False, "vocab_only": False, "penalize_newline": True, "num_keep": 4},
        {"use_mmap": False, "f16_kv": None, "logits_all": False, "embedding_only": False},
    ],
)
def test_what_clients_send_that_asks_for_nothing_is_taken(options: dict[str, object]) -> None:
    assert params(**options) == params()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("mirostat", 1),
        ("tfs_z", 0.5),
        ("typical_p", 0.7),
        ("num_gpu", 0),
        ("main_gpu", 1),
        ("num_thread", 8),
        ("num_batch", 2),
        ("low_vram", True),
        ("numa", True),
        ("use_mlock", True),
        ("f16_kv", True),
        ("logits_all", True),
        ("vocab_only", True),
        ("embedding_only", True),
        ("penalize_newline", False),
        ("temperature", 2.5),
        ("temperature", "1"),
        ("top_p", 1.5),
        ("num_ctx", 0),
        ("num_predict", -3),
        ("stop", "END"),
        ("repeat_penalty", 0),
        ("top_z", 1),
    ],
)
def test_what_exo_does_not_do_is_refused_by_the_options_name(option: str, value: object) -> None:
    problem = refused(ChatRequest, messages=USER, options={option: value})
    assert problem.http_status == 400
    assert problem.param == f"options.{option}"
    assert option in problem.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": 5}, "messages"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "what?", "images": ["aGk="]}]}, "messages[0].images"),
        ({"messages": [{"role": "user", "content": "hi", "tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "user", "content": "hi", "thinking": "hm"}]}, "messages[0].thinking"),
        ({"messages": [{"role": "user", "content": "hi", "tool_name": "t"}]}, "messages[0].tool_name"),
        ({"format": "xml"}, "format"),
        ({"format": 1}, "format"),
        ({"think": "a lot"}, "think"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"keep_alive": True}, "keep_alive"),
        ({"truncate": True}, "truncate"),
        ({"shift": True}, "shift"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"stream": "yes"}, "stream"),
        ({"top_k": 1}, "top_k"),
    ],
)
def test_what_a_chat_cannot_have_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    problem = refused(ChatRequest, **{"messages": USER, **fields})
    assert (problem.http_status, problem.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1, 2]}, "context"),
        ({"images": ["aGk="]}, "images"),
        ({"raw": True, "system": "be brief"}, "system"),
        ({"raw": True, "think": True}, "raw"),
        ({"width": 512}, "width"),
        ({"prompt": 5}, "prompt"),
    ],
)
def test_what_a_prompt_cannot_have_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    problem = refused(GenerateRequest, **{"prompt": "hi", **fields})
    assert (problem.http_status, problem.param) == (400, param)


def test_what_asks_for_nothing_may_be_there() -> None:
    empty = generate(suffix="", template="", system="", context=[], images=[], raw=False, format="", options={})
    assert empty == generate(truncate=False, shift=False)


@pytest.mark.parametrize(
    ("fields", "cuts"),
    [({}, True), ({"truncate": None}, True), ({"truncate": True}, True), ({"truncate": False}, False)],
)
def test_texts_are_cut_unless_told_otherwise(fields: dict[str, object], cuts: bool) -> None:
    assert embed(**fields) == EmbeddingParams(truncate=cuts)


def test_texts_have_a_context_of_their_own_and_no_other_options() -> None:
    assert embed(options={"num_ctx": 512, "temperature": None, "num_gpu": -1}).context == 512
    one = EmbeddingsRequest.model_validate({"model": "m", "prompt": "hi", "options": {"num_ctx": 512}}).to_domain()
    assert one.params == EmbeddingParams(context=512)
    problem = refused(EmbedRequest, input="hi", options={"temperature": 1})
    assert (problem.http_status, problem.param) == (400, "options.temperature")


def test_a_prompt_is_a_question_or_stands_as_it_is() -> None:
    assert generate().messages == (ChatMessage(role="user", content="hi"),)
    asked = generate(system="be brief", think="low")
    assert asked.messages == (ChatMessage(role="system", content="be brief"), ChatMessage(role="user", content="hi"))
    assert (asked.enable_thinking, asked.reasoning_effort) == (True, "low")
    raw = generate(raw=True)
    assert (raw.prompt, raw.messages) == ("hi", ())


@pytest.mark.parametrize(
    ("think", "thinks", "effort"),
    [(None, None, None), (True, True, None), (False, False, None), ("high", True, "high"), ("max", True, "max")],
)
def test_thinking_is_on_off_or_a_level(think: object, thinks: bool | None, effort: str | None) -> None:
    asked = chat(think=think)
    assert (asked.enable_thinking, asked.reasoning_effort) == (thinks, effort)


def test_a_format_is_json_or_a_schema() -> None:
    assert chat(format="json").params.constraint == JsonObject(param="format")
    held = chat(format=SCHEMA).params.constraint
    assert isinstance(held, JsonSchema)
    assert (json.loads(held.text), held.strict, held.param) == (SCHEMA, True, "format")
    assert chat(format="").params.constraint is None


def test_logprobs_are_told_with_as_many_others_as_asked_for() -> None:
    assert chat(logprobs=True).params.logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).params.logprobs == 3
    assert chat(logprobs=False, top_logprobs=0).params.logprobs is None


def test_a15_a_tools_result_finds_its_call_by_id_by_name_or_by_order() -> None:
    other: dict[str, object] = {"function": {"name": "get_time", "arguments": {}}}
    asked: dict[str, object] = {"role": "assistant", "content": "", "tool_calls": [CALL, other, {"id": "x", **CALL}]}
    found = messages(
        *USER,
        asked,
        {"role": "tool", "content": "noon", "tool_name": "get_time"},
        {"role": "tool", "content": "sun", "tool_call_id": "x"},
        {"role": "tool", "content": "rain"},
        {"role": "tool", "content": "more"},
    )
    weather = ToolCall(id="call_1_0", name="get_weather", arguments='{"city":"Oslo"}')
    assert found[1].tool_calls == (
        weather,
        ToolCall(id="call_1_1", name="get_time", arguments="{}"),
        weather.replaced({"id": "x"}),
    )
    assert [one.tool_call_id for one in found[2:]] == ["call_1_1", "x", "call_1_0", None]
    assert found[2].name == "get_time"


def test_an_answer_comes_back_as_history() -> None:
    answer = {"role": "Assistant", "content": "yes", "thinking": "hm", "images": None, "tool_calls": None}
    assert messages(*USER, answer, *USER)[1] == ChatMessage(role="assistant", content="yes", reasoning="hm")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0, 0),
        (300, 300),
        (1.5, 1.5),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("100ms", 0.1),
        ("0", 0),
        (-1, FOREVER),
        ("-1m", FOREVER),
        ("24h", 86_400),
        ("90000h", FOREVER),
        (1e300, FOREVER),
        (None, None),
    ],
)
def test_a_duration_is_seconds_or_as_go_writes_it(given: object, seconds: float | None) -> None:
    assert SECONDS.validate_json(json.dumps(given)) == pytest.approx(seconds)


@pytest.mark.parametrize("given", ["", "5", "5 m", "m", "five", "1h-5m", [], True])
def test_what_is_no_duration_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        SECONDS.validate_json(json.dumps(given))


def test_a_model_has_its_name_under_either_of_two() -> None:
    assert Named.model_validate_json('{"model": "m", "name": ""}').wanted == "m"
    assert Named.model_validate_json('{"model": "", "name": "m"}').wanted == "m"
    assert "'model' is missing" in refused(Named, model="").message
    assert refused(Named, model="m", name="n").param == "name"
