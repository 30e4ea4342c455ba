"""Whatever a model writes, right or wrong, comes out the same however it is cut into tokens, and nothing hangs."""

import json
from itertools import pairwise
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from exo.domain.messages.requests import GenerationRequest, Tool
from exo.domain.sampling import FinishReason, SamplingParams
from exo.models.output_format import OutputFormat, ThinkTags, ToolFormat
from exo.runner.engines.scripted_tokenizer import END_TOKEN, ScriptedTokenizer
from exo.runner.output.opening import open_pipeline
from exo.runner.output.segments import Call, Segment, Text
from tests.pipelines import joined

THINK = ThinkTags(open="<think>", close="</think>")
TOOL = Tool(name="f", parameters='{"properties": {"k": {"type": "integer"}, "s": {"type": "string"}}}')
JSON = ['{"k": "1"}', '{"k": ', '{"s": "a</tool_call>"}', "{}", "{", "}", '"', "\\", "[", "]", ";", "null"]
FRAGMENTS = {
    "tool_call": ["<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', '{"name": "f", "parameters": ', "}"],
    "function": ["<function=f>", "</function>", "<parameter=k>", "</parameter>", "<parameter=s>\n", "\n</parameter>"],
    "glm": ["f", "<arg_key>k</arg_key>", "<arg_value>1</arg_value>", "<arg_value>", "<arg_key>s</arg_key>"],
    "llama3": ["<|python_tag|>", '{"name": "f", "parameters": {"k": 1}}', '{"name": "f", "parameters": {}}', ";"],
    "mistral": ["[TOOL_CALLS]", "f", "[ARGS]", "[CALL_ID]", "[", '{"name": "f", "arguments": {}}', "]"],
    "kimi": ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>"],
    "kimi_item": ["functions.f:0", "<|tool_call_argument_begin|>"],
    "minimax": ["<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="f">', "</invoke>"],
    "minimax_item": ['<parameter name="k">', "</parameter>", "1"],
    "deepseek": ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"],
    "deepseek_item": ["f", "<｜tool▁sep｜>", "function", "\n```json\n", "\n```"],
    "dsml": ["<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"],
    "dsml_item": ['<｜DSML｜invoke name="f">', "</｜DSML｜invoke>", '<｜DSML｜parameter name="k" string="false">', "1"],
    "dsml_value": ["</｜DSML｜parameter>", '<｜DSML｜parameter name="s" string="true">'],
    "harmony": ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"],
    "harmony_header": [
        "assistant",
        "analysis",
        "final",
        "commentary",
        " to=functions.f",
        " to=!x",
        " to=python",
        " json",
    ],
}
USED: dict[str, list[str]] = {
    "hermes": ["tool_call"],
    "qwen3_coder": ["tool_call", "function"],
    "llama3_json": ["llama3"],
    "mistral_json": ["mistral"],
    "mistral_v11": ["mistral"],
    "mistral_args": ["mistral"],
    "glm": ["tool_call", "glm"],
    "kimi_k2": ["kimi", "kimi_item"],
    "minimax_m2": ["minimax", "minimax_item"],
    "deepseek_v3": ["deepseek", "deepseek_item"],
    "deepseek_v31": ["deepseek", "deepseek_item"],
    "deepseek_v32": ["dsml", "dsml_item", "dsml_value"],
    "deepseek_v4": ["dsml", "dsml_item", "dsml_value"],
    "harmony": ["harmony", "harmony_header"],
}
PLAIN = ["word", " ", "\n", "\n\n", "é", "🚀", "<", "|", "<think>", "</think>", "</", "STOP", "ST"]


@st.composite
def texts(draw: st.DrawFn, form: str) -> str:
    """Fragments of what the format has, in any order; now and then one is cut short."""
    fragments = [*PLAIN, *JSON, *(one for name in USED[form] for one in FRAGMENTS[name] * 3)]
    chosen = draw(st.lists(st.sampled_from(fragments), max_size=14))
    return "".join(one[: draw(st.integers(0, len(one)))] if draw(st.integers(0, 9)) == 0 else one for one in chosen)


@st.composite
def forms(draw: st.DrawFn, name: str) -> OutputFormat:
    if name == "harmony":
        return OutputFormat(harmony=True)
    think = draw(st.sampled_from([None, THINK]))
    tools: ToolFormat = name  # pyright: ignore[reportAssignmentType]  USED has no other
    return OutputFormat(tools=tools, think=think, starts_inside=think is not None and draw(st.booleans()))


def run(form: OutputFormat, pieces: list[str], finish: FinishReason) -> tuple[list[Segment], FinishReason, str | None]:
    """What a client sees: neighbours of one kind joined, the finish reason, and the stop sequence."""
    request = GenerationRequest(messages=(), params=SamplingParams(stop=("STOP",)), tools=(TOOL,))
    tokenizer = ScriptedTokenizer()
    pipeline = open_pipeline(form, tokenizer, request)
    tokens = [tokenizer.token(piece) for piece in pieces] or [tokenizer.token("")]
    endings: list[tuple[int, FinishReason | None]] = [(token, None) for token in tokens]
    endings = [*endings, (END_TOKEN, "stop")] if finish == "stop" else [*endings[:-1], (tokens[-1], finish)]
    segments: list[Segment] = []
    for token, ending in endings:
        result = pipeline.push(token, ending)
        segments += result.segments
        if result.finished is not None:
            assert not result.holds
            return joined(segments), result.finished, result.stop_sequence
    raise AssertionError("the pipeline did not finish")


def test_every_format_is_tried() -> None:
    assert {*get_args(ToolFormat), "harmony"} == set(USED)


@given(st.data(), st.sampled_from(sorted(USED)), st.sampled_from(["stop", "length"]))
def test_a11_any_text_comes_out_the_same_under_any_cut(data: st.DataObject, name: str, finish: FinishReason) -> None:
    form = data.draw(forms(name))
    text = data.draw(texts(name))
    borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    whole = run(form, [text], finish)
    assert run(form, list(text), finish) == whole
    assert run(form, [text[start:end] for start, end in pairwise([0, *borders, len(text)])], finish) == whole
    for segment in whole[0]:
        if isinstance(segment, Call):
            assert isinstance(json.loads(segment.arguments), dict)


@given(st.data(), st.sampled_from(sorted(USED)))
def test_text_without_a_marker_is_text(data: st.DataObject, name: str) -> None:
    text = data.draw(st.text(alphabet="ab <{[|\n\"'é🚀", max_size=40))
    segments, finished, _ = run(OutputFormat(tools=None if name == "harmony" else name), list(text), "stop")  # pyright: ignore
    assert (segments, finished) == ([Text(text)] if text else [], "stop")


@given(st.data(), st.sampled_from(["hermes", "qwen3_coder", "glm"]), st.sampled_from(["stop", "length"]))
def test_nothing_that_was_written_is_lost_without_a_call(data: st.DataObject, name: str, finish: FinishReason) -> None:
    text = data.draw(texts(name)).replace("STOP", "").replace("<think>", "").replace("</think>", "")
    segments, _, stop = run(OutputFormat(tools=name), list(text), finish)  # pyright: ignore
    if stop is None and not any(isinstance(segment, Call) for segment in segments):
        assert "".join(segment.text for segment in segments if isinstance(segment, Text)) == text
