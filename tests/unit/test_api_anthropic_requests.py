"""Bodies of Anthropic's endpoints: what is accepted, what it becomes, and what is refused by name."""

import json

import pytest
from pydantic import ValidationError

from exo.api.anthropic.requests import MessagesRequest
from exo.api.http.body_errors import validation_problem
from exo.api.http.problem import Problem
from exo.domain.constraint import JsonSchema
from exo.domain.messages.requests import ChatMessage, GenerationRequest, ToolCall

USER = [{"role": "user", "content": "hi"}]
BODY = {"model": "m", "max_tokens": 2000, "messages": USER}
SCHEMA: dict[str, object] = {"type": "object", "properties": {}}
WEATHER: dict[str, object] = {"name": "get_weather", "description": "the weather", "input_schema": SCHEMA}
CALL: dict[str, object] = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}
RESULT: dict[str, object] = {"type": "tool_result", "tool_use_id": "t"}
IMAGE: dict[str, object] = {"type": "image", "source": {"type": "base64"}}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def parsed(**fields: object) -> MessagesRequest:
    return MessagesRequest.model_validate_json(json.dumps({**BODY, **fields}))


def request(**fields: object) -> GenerationRequest:
    return parsed(**fields).to_generation()


def messages(*given: object, **fields: object) -> tuple[ChatMessage, ...]:
    return request(messages=given, **fields).messages


def refusal(body: object) -> Problem:
    with pytest.raises(ValidationError) as caught:
        MessagesRequest.model_validate_json(body if isinstance(body, str) else json.dumps(body))
    return validation_problem(caught.value.errors(include_url=False))


def refused(**fields: object) -> Problem:
    return refusal({**BODY, **fields})


def user(*blocks: object) -> dict[str, object]:
    return {"role": "user", "content": blocks}


def assistant(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": blocks}


def text(words: str, **fields: object) -> dict[str, object]:
    return {"type": "text", "text": words, **fields}


def test_defaults_are_those_of_anthropic() -> None:
    params = request().params
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens, params.stop) == (1.0, 1.0, 0, 2000, ())
    assert request().enable_thinking is None


def test_null_stands_for_the_default() -> None:
    names = ["temperature", "top_p", "top_k", "stop_sequences", "stream", "tools", "tool_choice", "thinking", "system"]
    assert request(**dict.fromkeys(names)) == request()


def test_what_is_asked_for_is_what_the_engine_gets() -> None:
    params = request(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END", "STOP"]).params
    assert (params.temperature, params.top_p, params.top_k, params.stop) == (0.5, 0.9, 40, ("END", "STOP"))
    assert request(top_p=0).params.top_p > 0


def test_parameters_without_an_effect_on_the_answer_are_accepted() -> None:
    fields = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "speed": "standard",
        "inference_geo": None,
        **CACHED,
    }
    assert request(**fields) == request()


@pytest.mark.parametrize("system", ["be brief", [text("be brief")], [text("be brief", **CACHED)]])
def test_a25_system_is_a_text_or_blocks(system: object) -> None:
    assert messages(*USER, system=system)[0] == ChatMessage(role="system", content="be brief")


def test_a25_system_is_a_message_too_and_joins_what_stands_before_it() -> None:
    found = messages({"role": "system", "content": "in French"}, *USER, system="be brief")
    assert found == (
        ChatMessage(role="system", content="be brief\nin French"),
        ChatMessage(role="user", content="hi"),
    )


def test_a25_a_later_system_message_stays_where_it_is() -> None:
    found = messages(*USER, assistant(text("hello")), {"role": "system", "content": "in French"}, user(text("go on")))
    assert [message.role for message in found] == ["user", "assistant", "system", "user"]


def test_what_one_speaker_says_in_a_row_is_one_turn() -> None:
    found = messages(user(text("a"), text("b")), user(text("c")))
    assert found == (ChatMessage(role="user", content="a\nb\nc"),)


def test_a15_calls_and_their_results_are_in_the_conversation() -> None:
    found = messages(
        *USER,
        assistant({"type": "thinking", "thinking": "hm", "signature": "x"}, text("let me look"), CALL),
        user({"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("rain"), text("wind")]}, text("and?")),
    )
    assert found == (
        ChatMessage(role="user", content="hi"),
        ChatMessage(
            role="assistant",
            content="let me look",
            reasoning="hm",
            tool_calls=(ToolCall(id="toolu_1", name="get_weather", arguments='{"city":"Oslo"}'),),
        ),
        ChatMessage(role="tool", content="rain\nwind", tool_call_id="toolu_1"),
        ChatMessage(role="user", content="and?"),
    )


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({}, ""),
        ({"content": "sunny"}, "sunny"),
        ({"content": []}, ""),
        ({"content": "no such city", "is_error": True}, "Error: no such city"),
        ({"content": "sunny", "is_error": False, **CACHED}, "sunny"),
    ],
)
def test_a_result_is_a_text_or_blocks_and_says_when_it_is_an_error(fields: dict[str, object], content: str) -> None:
    assert messages(*USER, assistant(CALL), user({**RESULT, **fields}))[-1].content == content


def test_several_results_stay_apart() -> None:
    results = [{**RESULT, "tool_use_id": name, "content": name} for name in ("a", "b")]
    assert [message.tool_call_id for message in messages(*USER, assistant(CALL), user(*results))[-2:]] == ["a", "b"]


def test_thoughts_that_only_anthropic_can_read_are_left_out() -> None:
    redacted = {"type": "redacted_thinking", "data": "abc"}
    assert messages(*USER, assistant(redacted, text("hello")), *USER)[1] == ChatMessage(
        role="assistant", content="hello"
    )


def test_tools_are_offered_with_their_schemas() -> None:
    (tool,) = request(tools=[{**WEATHER, "type": "custom", **CACHED}]).tools
    assert (tool.name, tool.description, json.loads(tool.parameters)) == (
        "get_weather",
        "the weather",
        {"type": "object", "properties": {}},
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ("auto", None, True)),
        ({"type": "auto"}, ("auto", None, True)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", None, False)),
        ({"type": "any"}, ("required", None, True)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("required", None, False)),
        ({"type": "tool", "name": "get_weather"}, ("required", "get_weather", False)),
        ({"type": "none"}, ("none", None, True)),
    ],
)
def test_which_tool_is_called(choice: object, expected: tuple[object, ...]) -> None:
    made = request(tools=[WEATHER], tool_choice=choice)
    assert (made.tool_choice, made.tool_name, made.parallel_tool_calls) == expected


@pytest.mark.parametrize(
    ("thinking", "enabled", "shown"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, True, True),
        ({"type": "adaptive"}, True, True),
        ({"type": "adaptive", "display": "summarized"}, True, True),
        ({"type": "adaptive", "display": "omitted"}, True, False),
        ({"type": "disabled"}, False, True),
    ],
)
def test_thinking_is_switched(thinking: object, enabled: bool, shown: bool) -> None:
    assert request(thinking=thinking).enable_thinking is enabled
    assert parsed(thinking=thinking).shows_thinking is shown


@pytest.mark.parametrize(("effort", "expected"), [("low", "low"), ("xhigh", "xhigh"), ("max", "xhigh"), (None, None)])
def test_effort_goes_to_the_template(effort: str | None, expected: str | None) -> None:
    assert request(output_config={"effort": effort}).reasoning_effort == expected


def test_a_format_is_enforced() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = request(output_config={"format": {"type": "json_schema", "schema": schema}}).params.constraint
    assert isinstance(found, JsonSchema)
    assert (json.loads(found.text), found.strict, found.param) == (schema, True, "output_config.format.schema")


WRONG: list[tuple[dict[str, object], str]] = [
    ({"model": ""}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": 5}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "messages[0].name"),
    ({"messages": [user(text("a"), {"type": "text"})]}, "messages[0].content[1].text"),
    ({"messages": [user(text("a"), {"type": "poem"})]}, "messages[0].content[1]"),
    ({"messages": [user(CALL)]}, "messages[0].content[0]"),
    (
        {"messages": [*USER, assistant({"type": "tool_result", "tool_use_id": "t"}), *USER]},
        "messages[1].content[0]",
    ),
    ({"messages": [*USER, assistant({**CALL, "input": "{}"}), *USER]}, "messages[1].content[0].input"),
    ({"messages": [*USER, assistant(text("The answer is"))]}, "messages"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"temperature": 1.5}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"stop_sequences": "END"}, "stop_sequences"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "max_tokens"),
    ({"thinking": {"type": "sometimes"}}, "thinking"),
    ({"tools": [{**WEATHER, "name": "a b"}]}, "tools[0].name"),
    ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
    ({"tools": [{**WEATHER, "input_schema": {"type": "string"}}]}, "tools[0].input_schema"),
    ({"tools": [WEATHER, WEATHER]}, "tools"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice"),
    ({"metadata": {"user": "u"}}, "metadata.user"),
    ({"service_tier": "priority"}, "service_tier"),
    ({"cache_control": {"type": "for ever"}}, "cache_control.type"),
    ({"top_z": 1}, "top_z"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_a20_what_is_wrong_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    problem = refused(**fields)
    assert (problem.http_status, problem.param) == (400, param)


@pytest.mark.parametrize("name", ["model", "messages", "max_tokens"])
def test_a20_what_is_missing_is_named(name: str) -> None:
    problem = refusal({key: value for key, value in BODY.items() if key != name})
    assert problem.param == name
    assert "missing" in problem.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [user(text("what is this?"), IMAGE)]}, "messages[0].content[1]"),
        ({"messages": [user({**IMAGE, "type": "document"})]}, "messages[0].content[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]}, "tools[0].type"),
        ({"tools": [{**WEATHER, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"speed": "fast"}, "speed"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"context_management": {"edits": [1]}}, "context_management"),
        ({"messages": [*USER, assistant(text("The answer is"))]}, "messages"),
    ],
)
def test_what_exo_does_not_have_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    problem = refused(**fields)
    assert (problem.http_status, problem.param) == (400, param)


def test_an_image_in_a_result_is_refused_by_name() -> None:
    result = {**RESULT, "content": [text("see"), IMAGE]}
    problem = refused(messages=[*USER, assistant(CALL), user(result)])
    assert (problem.code, problem.param) == ("unsupported_parameter", "messages[2].content[0].content[1]")
    assert "image" in problem.message


def test_a_format_beside_a_demanded_call_is_refused() -> None:
    config = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    problem = refused(tools=[WEATHER], tool_choice={"type": "any"}, output_config=config)
    assert problem.param == "output_config"
    assert "tool_choice" in problem.message
