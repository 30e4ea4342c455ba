"""Calls and reasoning at the edges of their formats: what models write that is not quite by the book."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.vector_runs import outcome, run

INSIDE = {"open": "<think>", "close": "</think>", "starts_inside": True}
OUTSIDE = {"open": "<think>", "close": "</think>", "starts_inside": False}


@dataclass(frozen=True)
class Case:
    """What a model wrote, and what comes out."""

    says: str
    form: str
    text: str
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    reasoning: str = ""
    finish: str = "stop"
    think: dict[str, Any] | None = None
    stop: list[str] | None = None
    tools: list[dict[str, Any]] | None = None


def tool(**properties: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}]


CASES = [
    Case(
        "a broken call is text, and the next one a call",
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": }</tool_call>\n<tool_call>{"name":"b","arguments":{}}</tool_call>',
        content='<tool_call>{"name": "a", "arguments": {"x": }</tool_call>\n',
        calls=[("b", "{}")],
    ),
    Case(
        "a string that never ends does not swallow the next call",
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": "abc</tool_call>\n<tool_call>'
        '{"name":"b","arguments":{}}</tool_call>',
        content='<tool_call>{"name": "a", "arguments": {"x": "abc</tool_call>\n',
        calls=[("b", "{}")],
    ),
    Case(
        "a closing marker within a string is part of it",
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": "</tool_call>"}}</tool_call>ok',
        content="ok",
        calls=[("a", '{"x": "</tool_call>"}')],
    ),
    Case(
        "a finished call stays one when the next is cut",
        "hermes",
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b", "argu',
        content='\n<tool_call>{"name": "b", "argu',
        calls=[("a", "{}")],
        finish="length",
    ),
    Case(
        "a call ends the reasoning",
        "hermes",
        'I need\n<tool_call>{"name": "a", "arguments": {}}</tool_call>',
        calls=[("a", "{}")],
        reasoning="I need\n",
        think=INSIDE,
    ),
    Case(
        "the reasoning's end is more certain than a call",
        "hermes",
        "use <tool_call> {x</think>Answer",
        content="Answer",
        reasoning="use <tool_call> {x",
        think=INSIDE,
    ),
    Case(
        "a value that was not closed ends at the next",
        "qwen3_coder",
        "<tool_call>\n<function=w>\n<parameter=city>\nDallas\n<parameter=state>\nTX\n</parameter>\n</function>\n</tool_call>",
        calls=[("w", '{"city": "Dallas", "state": "TX"}')],
    ),
    Case(
        "the last value that was not closed ends with its function",
        "qwen3_coder",
        "<tool_call>\n<function=w>\n<parameter=city>\nDallas\n</function>\n</tool_call>",
        calls=[("w", '{"city": "Dallas"}')],
    ),
    Case(
        "a function that was not closed ends with the block",
        "qwen3_coder",
        "<tool_call>\n<function=w>\n<parameter=city>\nDallas\n</parameter>\n</tool_call>",
        calls=[("w", '{"city": "Dallas"}')],
    ),
    Case(
        "the outer marker may be missing",
        "qwen3_coder",
        "Hi\n<function=w>\n<parameter=city>\nDallas\n</parameter>\n</function>\n</tool_call>",
        content="Hi\n",
        calls=[("w", '{"city": "Dallas"}')],
    ),
    Case(
        "closing markers within a value are part of it",
        "qwen3_coder",
        "<tool_call>\n<function=w>\n<parameter=t>\nx </tool_call> y </function>"
        "\n</parameter>\n</function>\n</tool_call>z",
        content="z",
        calls=[("w", '{"t": "x </tool_call> y </function>"}')],
    ),
    Case(
        "a block may have two functions",
        "qwen3_coder",
        "<tool_call>\n<function=a>\n</function>\n<function=b>\n</function>\n</tool_call>",
        calls=[("a", "{}"), ("b", "{}")],
    ),
    Case(
        "a value that was not closed ends with its call, and the next is one too",
        "qwen3_coder",
        "<tool_call>\n<function=a>\n<parameter=x>\n1\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=b>\n<parameter=y>\n2\n</parameter>\n</function>\n</tool_call>",
        calls=[("a", '{"x": "1"}'), ("b", '{"y": "2"}')],
    ),
    Case(
        "an object within prose is no call",
        "llama3_json",
        'Here: {"name":"f","parameters":{}} ok',
        content='Here: {"name":"f","parameters":{}} ok',
    ),
    Case(
        "calls are parted by a semicolon",
        "llama3_json",
        '{"name":"f","parameters":{}}; {"name":"g","arguments":{"a":1}}',
        calls=[("f", "{}"), ("g", '{"a": 1}')],
    ),
    Case(
        "a type is part of a call",
        "llama3_json",
        '{"type":"function","name":"f","parameters":{"a":"b"}}',
        calls=[("f", '{"a": "b"}')],
    ),
    Case(
        "a cut object is text",
        "llama3_json",
        '{"name":"f","parameters":{"a":',
        content='{"name":"f","parameters":{"a":',
        finish="length",
    ),
    Case(
        "text after a list stays text",
        "mistral_json",
        '[TOOL_CALLS] [{"name":"f","arguments":{}}]\n\nDone',
        content="\n\nDone",
        calls=[("f", "{}")],
    ),
    Case(
        "a broken list is text",
        "mistral_json",
        '[TOOL_CALLS] [{"name":"f","arguments":{x}}]',
        content='[TOOL_CALLS] [{"name":"f","arguments":{x}}]',
    ),
    Case(
        "arguments may be a text with JSON in it",
        "mistral_json",
        '[TOOL_CALLS] [{"name":"f","arguments":"{\\"a\\": 1}"}]',
        calls=[("f", '{"a": 1}')],
    ),
    Case(
        "each marker begins a call",
        "mistral_v11",
        '[TOOL_CALLS]a{"x":1}[TOOL_CALLS]b{"y":2}',
        calls=[("a", '{"x": 1}'), ("b", '{"y": 2}')],
    ),
    Case("a cut call is text", "mistral_v11", '[TOOL_CALLS]a{"x":', content='[TOOL_CALLS]a{"x":', finish="length"),
    Case(
        "GLM may write Hermes' form",
        "glm",
        '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>',
        calls=[("f", '{"a": 1}')],
    ),
    Case(
        "spaces of a text are kept",
        "glm",
        "<tool_call>f<arg_key>a</arg_key><arg_value>  x  </arg_value></tool_call>",
        calls=[("f", '{"a": "  x  "}')],
        tools=tool(a={"type": "string"}),
    ),
    Case(
        "a closing marker within a value is part of it",
        "glm",
        "<tool_call>f<arg_key>a</arg_key><arg_value>x </tool_call> y</arg_value></tool_call>z",
        content="z",
        calls=[("f", '{"a": "x </tool_call> y"}')],
    ),
    Case(
        "a value that was not closed ends with its call, and the next is one too",
        "glm",
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</tool_call>"
        "<tool_call>g<arg_key>b</arg_key><arg_value>2</arg_value></tool_call>",
        calls=[("f", '{"a": "1"}'), ("g", '{"b": "2"}')],
    ),
    Case(
        "a section without a call is text",
        "kimi_k2",
        "A<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{x}<|tool_call_end|><|tool_calls_section_end|>B",
        content="A<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{x}<|tool_call_end|><|tool_calls_section_end|>B",
    ),
    Case(
        "a call is complete without its section's end",
        "kimi_k2",
        "A<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        content="A",
        calls=[("f", "{}")],
    ),
    Case(
        "names may have dots",
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.a.b-c:12<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        calls=[("a.b-c", "{}")],
    ),
    Case(
        "an invoke that was not closed ends with the block",
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</minimax:tool_call>',
        calls=[("f", '{"a": "1"}')],
    ),
    Case(
        "what is cut after a call is text",
        "minimax_m2",
        'X<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>'
        '\n</invoke>\n<invoke name="g">\n<para',
        content='X\n<invoke name="g">\n<para',
        calls=[("f", '{"a": "1"}')],
        finish="length",
    ),
    Case(
        "the schema is above the mark",
        "deepseek_v32",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">'
        '\n<｜DSML｜parameter name="a" string="true">5</｜DSML｜parameter>\n</｜DSML｜invoke>'
        "\n</｜DSML｜function_calls>",
        calls=[("f", '{"a": 5}')],
        tools=tool(a={"type": "integer"}),
    ),
    Case(
        "reasoning that is opened twice is closed once",
        "deepseek_v4",
        '<think>hm</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">'
        "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        calls=[("f", "{}")],
        reasoning="hm",
        think=INSIDE,
    ),
    Case(
        "a second block is read too",
        "deepseek_v32",
        '<｜DSML｜function_calls><｜DSML｜invoke name="f"></｜DSML｜invoke>'
        '</｜DSML｜function_calls>\n<｜DSML｜function_calls><｜DSML｜invoke name="g">'
        "</｜DSML｜invoke></｜DSML｜function_calls>",
        calls=[("f", "{}"), ("g", "{}")],
    ),
    Case(
        "a call that is cut within the reasoning is reasoning",
        "deepseek_v32",
        "hm <｜DSML｜function_calls>\n<｜DSML｜inv",
        reasoning="hm <｜DSML｜function_calls>\n<｜DSML｜inv",
        finish="length",
        think=INSIDE,
    ),
    Case(
        "an answer may be constrained",
        "gpt_oss_harmony",
        '<|channel|>final <|constrain|>json<|message|>{"a":1}<|return|>',
        content='{"a":1}',
    ),
    Case(
        "no arguments are an empty object",
        "gpt_oss_harmony",
        "<|channel|>commentary to=functions.f<|message|><|call|>",
        calls=[("f", "{}")],
    ),
    Case(
        "other recipients are called too",
        "gpt_oss_harmony",
        '<|channel|>analysis to=browser.search code<|message|>{"query":"x"}<|call|>',
        calls=[("browser.search", '{"query": "x"}')],
    ),
    Case(
        "code for a tool of the model's own is not for the client",
        "gpt_oss_harmony",
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        reasoning="print(1)",
    ),
    Case(
        "a call without its end is text",
        "gpt_oss_harmony",
        '<|channel|>commentary to=functions.f json<|message|>{"a":1}',
        content='{"a":1}',
        finish="length",
    ),
    Case(
        "commentary without a recipient is the answer",
        "gpt_oss_harmony",
        "<|channel|>commentary<|message|>I will.<|end|><|start|>assistant<|channel|>"
        'commentary to=functions.f json<|message|>{"a":1}<|call|>',
        content="I will.",
        calls=[("f", '{"a": 1}')],
    ),
    Case(
        "a stop sequence counts in the answer only",
        "think",
        "<think>a END b</think>c END d",
        content="c ",
        reasoning="a END b",
        think=OUTSIDE,
        stop=["END"],
    ),
    Case(
        "no stop sequence goes over reasoning",
        "think",
        "E<think>a</think>ND d",
        content="END d",
        reasoning="a",
        think=OUTSIDE,
        stop=["END"],
    ),
    Case(
        "no stop sequence is looked for in a call",
        "hermes",
        '<tool_call>{"name":"f","arguments":{"a":"END"}}</tool_call>xENDy',
        content="x",
        calls=[("f", '{"a": "END"}')],
        stop=["END"],
    ),
    Case(
        "a marker is never a stop sequence",
        "hermes",
        'a<tool_call>{"name":"f","arguments":{}}</tool_call>',
        content="a",
        calls=[("f", "{}")],
        stop=["<tool_call>"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.form}: {case.says}")
@pytest.mark.parametrize("by_character", [False, True])
def test_what_is_not_quite_by_the_book(case: Case, by_character: bool) -> None:
    vector = {"format": case.form, "think": case.think, "stop": case.stop, "tools": case.tools, "finish": case.finish}
    pieces = [letter.encode() for letter in case.text] if by_character else [case.text.encode()]
    result = outcome(run(vector, pieces))
    assert (result["content"], result["reasoning"]) == (case.content, case.reasoning)
    assert [(call["name"], call["arguments"]) for call in result["tool_calls"]] == case.calls
    ended = "tool_calls" if case.calls and result["finish_reason"] != "length" else None
    assert result["finish_reason"] == (ended or ("stop" if result["stop_sequence"] else case.finish))
