"""Chat request bodies: what is accepted, what it becomes, and what is refused by name."""

import json

import pytest
from pydantic import ValidationError

from exo.api.http.body_errors import validation_problem
from exo.api.http.problem import Problem
from exo.api.openai.requests import ChatCompletionRequest
from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.domain.messages.requests import GenerationRequest

USER = [{"role": "user", "content": "hi"}]
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}, "strict": True}}


def call(arguments: str) -> dict[str, object]:
    return {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


CALL = call('{"city": "Oslo"}')


def parsed(**fields: object) -> ChatCompletionRequest:
    return ChatCompletionRequest.model_validate_json(json.dumps({"model": "m", "messages": USER, **fields}))


def request(**fields: object) -> GenerationRequest:
    return parsed(**fields).to_domain()


def refusal(body: object) -> Problem:
    with pytest.raises(ValidationError) as caught:
        ChatCompletionRequest.model_validate_json(body if isinstance(body, str) else json.dumps(body))
    return validation_problem(caught.value.errors(include_url=False))


def refused(**fields: object) -> Problem:
    return refusal({"model": "m", "messages": USER, **fields})


def test_defaults_are_those_of_openai() -> None:
    params = request().params
    assert (params.temperature, params.top_p, params.seed, params.max_tokens, params.stop) == (1.0, 1.0, None, None, ())


def test_null_stands_for_the_default() -> None:
    names = ["temperature", "top_p", "seed", "max_tokens", "stop", "stream", "n", "tools", "logprobs", "logit_bias"]
    assert request(**dict.fromkeys(names)) == request()


@pytest.mark.parametrize(
    ("stop", "expected"), [("END", ("END",)), (["a", "b", "c", "d"], ("a", "b", "c", "d")), ([], ()), (None, ())]
)
def test_a10_stop_is_a_text_or_up_to_four(stop: object, expected: tuple[str, ...]) -> None:
    assert request(stop=stop).params.stop == expected


@pytest.mark.parametrize("stop", ["", ["a", ""], ["a", "b", "c", "d", "e"], 5, [5], {}])
def test_a10_other_stops_are_refused(stop: object) -> None:
    problem = refused(stop=stop)
    assert problem.http_status == 400
    assert (problem.param or "").startswith("stop")


def test_a17_developer_counts_as_system() -> None:
    messages = request(messages=[{"role": "developer", "content": "be brief"}, *USER]).messages
    assert [message.role for message in messages] == ["system", "user"]


def test_a17_an_unknown_role_is_refused() -> None:
    problem = refused(messages=[{"role": "wizard", "content": "x"}])
    assert (problem.http_status, problem.param) == (400, "messages[0].role")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a18_both_names_of_the_limit_count(name: str) -> None:
    assert request(**{name: 7}).params.max_tokens == 7
    assert refused(**{name: 0}).param == name
    assert refused(**{name: -1}).param == name


def test_a18_two_limits_must_agree() -> None:
    assert request(max_tokens=7, max_completion_tokens=7).params.max_tokens == 7
    assert refused(max_tokens=7, max_completion_tokens=8).param == "max_completion_tokens"


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "messages": []},
        {"model": "m"},
        {"model": "m", "messages": None},
        {"model": "m", "messages": 5},
        {"model": "m", "messages": "hi"},
        {"model": "m", "messages": [None]},
        {"messages": USER},
        {"model": "", "messages": USER},
        {"model": 5, "messages": USER},
        [],
        "{broken",
        "",
        "null",
        '"\\ud800"',
    ],
)
def test_a20_a_body_that_is_none_is_a_400(body: object) -> None:
    assert refusal(body).http_status == 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "0.5"),
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("top_p", 1.5),
        ("stream", "true"),
        ("stream", 1),
        ("seed", 1.5),
        ("max_tokens", "7"),
        ("max_tokens", True),
        ("n", 0),
        ("n", 129),
        ("user", 5),
        ("metadata", {"a": 1}),
    ],
)
def test_a20_wrong_types_and_ranges_are_named(name: str, value: object) -> None:
    assert (refused(**{name: value}).param or "").startswith(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store", True),
        ("service_tier", "priority"),
        ("verbosity", "low"),
        ("prediction", {"type": "content", "content": "x"}),
        ("audio", {"voice": "x", "format": "mp3"}),
        ("web_search_options", {"search_context_size": "low"}),
        ("prompt_cache_options", {"mode": "explicit"}),
        ("moderation", {"model": "x"}),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("some_new_parameter", None),
        ("guided_decoding_backend", "xgrammar"),
    ],
)
def test_what_would_be_ignored_is_refused_by_name(name: str, value: object) -> None:
    problem = refused(**{name: value})
    assert (problem.http_status, problem.param, problem.code) == (400, name, "unsupported_parameter")
    assert name in problem.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1),
        ("logprobs", False),
        ("tools", []),
        ("tool_choice", "auto"),
        ("response_format", {"type": "text"}),
        ("presence_penalty", 0),
        ("frequency_penalty", 0.0),
        ("logit_bias", {}),
        ("user", "somebody"),
        ("metadata", {"run": "5"}),
        ("store", False),
        ("service_tier", "auto"),
        ("verbosity", "medium"),
        ("modalities", ["text"]),
        ("prompt_cache_retention", "24h"),
        ("safety_identifier", "x"),
        ("parallel_tool_calls", True),
    ],
)
def test_what_asks_for_nothing_is_accepted(name: str, value: object) -> None:
    assert request(**{name: value}) == request()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "one"}], "one"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ("", ""),
    ],
)
def test_content_is_a_text_or_parts(content: object, text: str) -> None:
    assert request(messages=[{"role": "user", "content": content}]).messages[0].content == text


REFUSAL = {"type": "refusal", "refusal": "I will not."}


@pytest.mark.parametrize(
    "fields",
    [{"content": [REFUSAL]}, {"content": None, "refusal": "I will not."}, {"content": "I will not."}],
)
def test_a_refusal_of_an_earlier_answer_is_what_it_said(fields: dict[str, object]) -> None:
    assert request(messages=[*USER, {"role": "assistant", **fields}]).messages[1].content == "I will not."


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_a_part_that_is_no_text_is_refused_by_its_type(kind: str) -> None:
    problem = refused(messages=[{"role": "user", "content": [{"type": kind, kind: {"url": "x"}}]}])
    assert (problem.http_status, problem.code, problem.param) == (
        400,
        "unsupported_parameter",
        "messages[0].content[0]",
    )
    assert kind in problem.message
    assert "text" in problem.message


def test_an_answer_comes_back_as_the_client_library_sends_it() -> None:
    answer = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": None}
    assert request(messages=[*USER, answer, *USER]).messages[1].content == ""


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "colour": 1}]}, "messages[0].content[0].colour"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [REFUSAL]}, "messages[0]"),
        ({"role": "assistant", "content": [{**REFUSAL, "text": "x"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": []}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0]"),
        ({"role": "user"}, "messages[0]"),
        ({"role": "tool", "content": "4"}, "messages[0]"),
        ({"role": "tool", "tool_call_id": "c"}, "messages[0]"),
        ({"role": "function", "name": "f", "content": "4"}, "messages[0].role"),
        ({"role": "user", "content": "hi", "tool_calls": [CALL]}, "messages[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [call("{")]}, "messages[0].tool_calls[0].function.arguments"),
        ({"role": "assistant", "tool_calls": [call("[1]")]}, "messages[0].tool_calls[0].function.arguments"),
        ({"role": "user", "content": "hi", "colour": "red"}, "messages[0].colour"),
    ],
)
def test_messages_that_cannot_be_used_are_refused_with_their_place(message: object, param: str) -> None:
    problem = refused(messages=[message])
    assert (problem.http_status, problem.param) == (400, param)


@pytest.mark.parametrize(("seed", "expected"), [(0, 0), (-1, 2**64 - 1), (2**64, 0), (2**70 + 3, 3), (42, 42)])
def test_any_integer_is_a_seed(seed: int, expected: int) -> None:
    assert request(seed=seed).params.seed == expected


def test_top_p_zero_leaves_the_likeliest_token() -> None:
    assert 0 < request(top_p=0).params.top_p < 1e-3


def test_stream_options_are_for_streams() -> None:
    assert parsed(stream=True, stream_options={"include_usage": True}).wants_usage
    assert not parsed(stream=True, stream_options={"include_usage": False}).wants_usage
    assert not parsed(stream=True).wants_usage
    assert refused(stream_options={"include_usage": True}).param == "stream_options"


def test_t1_tools_become_names_and_schemas() -> None:
    (tool,) = request(tools=[WEATHER]).tools
    assert (tool.name, json.loads(tool.parameters), tool.strict) == ("get_weather", {"type": "object"}, True)
    (bare,) = request(tools=[{"type": "function", "function": {"name": "now"}}]).tools
    assert json.loads(bare.parameters) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function"},
        {"type": "retrieval", "function": {"name": "f"}},
        {"type": "function", "function": {"name": ""}},
        {"type": "function", "function": {"name": "two words"}},
        {"type": "function", "function": {"name": "a<b"}},
        {"type": "function", "function": {"name": "f", "parameters": []}},
        {"type": "function", "function": {"name": "f", "colour": "red"}},
        {"type": "function", "function": {"name": "a.b"}},
        {"type": "function", "function": {"name": "f" * 65}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": ["object", "null"]}}},
        5,
    ],
)
def test_t1_what_is_no_tool_is_refused(tool: object) -> None:
    problem = refused(tools=[tool])
    assert problem.http_status == 400
    assert (problem.param or "").startswith("tools[0]")


def test_t1_two_tools_of_one_name_are_refused() -> None:
    problem = refused(tools=[WEATHER, WEATHER])
    assert (problem.http_status, problem.param) == (400, "tools")
    assert "get_weather" in problem.message


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize(("name", "value"), [("response_format", {"type": "json_object"}), ("guided_regex", "a")])
def test_t3_a_demanded_call_leaves_no_room_for_a_format(choice: object, name: str, value: object) -> None:
    problem = refused(tools=[WEATHER], tool_choice=choice, **{name: value})
    assert (problem.http_status, problem.param) == (400, name)
    assert "'tool_choice'" in problem.message
    text = {"type": "text"}
    assert request(tools=[WEATHER], tool_choice=choice, response_format=text).tool_choice == "required"


def test_t2_calls_and_their_answers_come_back_as_history() -> None:
    answer = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}], "reasoning_content": "hm"}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"}]}
    _, assistant, tool = request(messages=[*USER, answer, result]).messages
    assert (assistant.content, assistant.reasoning) == ("", "hm")
    assert [(one.id, one.name, json.loads(one.arguments)) for one in assistant.tool_calls] == [
        ("call_1", "get_weather", {"city": "Oslo"})
    ]
    assert (tool.role, tool.tool_call_id, tool.content) == ("tool", "call_1", "sunny")


def test_t2_a_call_without_arguments_has_an_empty_object() -> None:
    (assistant,) = request(messages=[{"role": "assistant", "tool_calls": [call("")]}]).messages
    assert assistant.tool_calls[0].arguments == "{}"


def test_t3_no_tool_is_called_where_that_is_asked_for() -> None:
    assert request(tools=[WEATHER], tool_choice="none").tool_choice == "none"
    assert request(tools=[WEATHER], parallel_tool_calls=False).parallel_tool_calls is False


def test_t3_a_call_can_be_demanded_of_any_tool_or_of_one() -> None:
    assert request(tools=[WEATHER], tool_choice="required").tool_choice == "required"
    chosen = request(tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "get_weather"}})
    assert (chosen.tool_choice, chosen.tool_name) == ("required", "get_weather")


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        ("required", None),
        ({"type": "function", "function": {"name": "get_weather"}}, []),
        ({"type": "function", "function": {"name": "other"}}, [WEATHER]),
        ("sometimes", [WEATHER]),
    ],
)
def test_t3_a_choice_that_cannot_be_made_is_refused(choice: object, tools: object) -> None:
    problem = refused(tool_choice=choice, tools=tools)
    assert problem.http_status == 400
    assert (problem.param or "").startswith("tool_choice")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"enable_thinking": False}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"thinking": False}}, False),
    ],
)
def test_thinking_can_be_switched(fields: dict[str, object], expected: bool | None) -> None:
    assert request(**fields).enable_thinking is expected


def test_reasoning_effort_is_one_of_openais() -> None:
    assert request(reasoning_effort="high").reasoning_effort == "high"
    assert refused(reasoning_effort="enormous").param == "reasoning_effort"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"name": "n", "schema": SCHEMA}
SCHEMA_TEXT = '{"type":"object","properties":{"a":{"type":"integer"}}}'


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, JsonObject()),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, JsonObject()),
        (
            {"response_format": {"type": "json_schema", "json_schema": NAMED}},
            JsonSchema(text=SCHEMA_TEXT, strict=False),
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
            JsonSchema(text=SCHEMA_TEXT),
        ),
        ({"guided_json": SCHEMA}, JsonSchema(text=SCHEMA_TEXT, param="guided_json")),
        ({"guided_json": SCHEMA_TEXT}, JsonSchema(text=SCHEMA_TEXT, param="guided_json")),
        ({"guided_regex": "[0-9]+"}, Regex(pattern="[0-9]+", param="guided_regex")),
        ({"guided_choice": ["a", "b"]}, Choice(choices=("a", "b"), param="guided_choice")),
        ({"guided_grammar": 'start: "a"'}, Grammar(text='start: "a"', param="guided_grammar")),
        ({"structured_outputs": {"json": SCHEMA}}, JsonSchema(text=SCHEMA_TEXT, param="structured_outputs.json")),
        ({"structured_outputs": {"json_object": True}}, JsonObject(param="structured_outputs.json_object")),
        ({"structured_outputs": {"regex": "a"}}, Regex(pattern="a", param="structured_outputs.regex")),
        ({"structured_outputs": {"choice": ["a"]}}, Choice(choices=("a",), param="structured_outputs.choice")),
        ({"structured_outputs": {"grammar": "start: a"}}, Grammar(text="start: a", param="structured_outputs.grammar")),
    ],
)
def test_formats_of_openai_and_of_vllm(fields: dict[str, object], constraint: Constraint | None) -> None:
    assert request(**fields).params.constraint == constraint


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "text", "json_schema": {"name": "n"}}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": 5}}}, "response_format"),
        ({"guided_choice": []}, "guided_choice"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
    ],
)
def test_formats_that_cannot_be_are_refused_by_name(fields: dict[str, object], param: str) -> None:
    problem = refused(**fields)
    assert problem.http_status == 400
    assert (problem.param or "").startswith(param)


def test_all_that_chooses_tokens_reaches_the_engine() -> None:
    params = request(
        top_k=40,
        min_p=0.1,
        presence_penalty=-2,
        frequency_penalty=1.5,
        repetition_penalty=1.2,
        repetition_context_size=64,
        logit_bias={"50256": -100, "7": 2.5},
        logprobs=True,
        top_logprobs=5,
    ).params
    assert (params.top_k, params.min_p, params.presence_penalty, params.frequency_penalty) == (40, 0.1, -2, 1.5)
    assert (params.repetition_penalty, params.repetition_context) == (1.2, 64)
    assert (params.logit_bias, params.logprobs) == (((7, 2.5), (50256, -100)), 5)
    assert request(logprobs=True).params.logprobs == 0
    assert request(top_k=-1).params.top_k == 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty"),
        ({"repetition_context_size": 10**18}, "repetition_context_size"),
        ({"repetition_context_size": 2**31}, "repetition_context_size"),
        ({"top_k": 2**31}, "top_k"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"logit_bias": {str(2**31): 1}}, "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"min_p": 1.5}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": 5}, "logprobs"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    problem = refused(**fields)
    assert (problem.http_status, (problem.param or "").split(".")[0]) == (400, param)
