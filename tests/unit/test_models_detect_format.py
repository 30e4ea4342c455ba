"""Which format a model's output has, from its chat template and its tokens."""

import pytest

from exo.models.detect_format import detect_format, opens_reasoning
from exo.models.output_format import OutputFormat, ThinkTags

THINK = ThinkTags(open="<think>", close="</think>")


@pytest.mark.parametrize(
    ("template", "tokens", "tools"),
    [
        ('...<tool_call>\n{"name": <function-name>}...', set(), "hermes"),
        ("<tool_call>\n<function=example>\n<parameter=a>", set(), "qwen3_coder"),
        ("<tool_call>{function-name}\n<arg_key>{key}</arg_key>", set(), "glm"),
        ("<|tool_calls_section_begin|>", {"<|tool_calls_section_begin|>"}, "kimi_k2"),
        ("<minimax:tool_call>", set(), "minimax_m2"),
        ("'<｜tool▁calls▁begin｜>' + '<｜tool▁sep｜>'", set(), "deepseek_v31"),
        ("'<｜tool▁calls▁begin｜>' + '```json'", set(), "deepseek_v3"),
        ("<｜DSML｜function_calls>", set(), "deepseek_v32"),
        ("<｜DSML｜tool_calls>", set(), "deepseek_v4"),
        ("", {"｜DSML｜"}, "deepseek_v32"),
        ('"[TOOL_CALLS] ["', {"[TOOL_CALLS]"}, "mistral_json"),
        ('"[TOOL_CALLS]" + name', {"[TOOL_CALLS]"}, "mistral_v11"),
        ('"[TOOL_CALLS]" + name + "[ARGS]"', {"[TOOL_CALLS]", "[ARGS]"}, "mistral_args"),
        ("Environment: ipython <|python_tag|>", {"<|python_tag|>"}, "llama3_json"),
        ("Environment: ipython", {"<|python_tag|>"}, "llama3_json"),
        ("{{ messages }}", {"<s>"}, None),
        ("", set(), None),
    ],
)
def test_the_form_of_calls(template: str, tokens: set[str], tools: str | None) -> None:
    assert detect_format(template, tokens).tools == tools


@pytest.mark.parametrize(
    ("template", "tokens", "think"),
    [
        ("content.split('</think>')", set(), THINK),
        ("", {"<think>", "</think>"}, THINK),
        ("", {"<think>"}, None),
        ("", {"[THINK]", "[/THINK]"}, ThinkTags(open="[THINK]", close="[/THINK]")),
        ("think step by step", set(), None),
    ],
)
def test_the_tags_of_the_reasoning(template: str, tokens: set[str], think: ThinkTags | None) -> None:
    assert detect_format(template, tokens).think == think


def test_harmony_is_known_by_its_tokens() -> None:
    tokens = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"}
    assert detect_format("functions <think>", tokens) == OutputFormat(harmony=True)


@pytest.mark.parametrize(
    ("end", "inside"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n", False),
        ("assistant\n<think>\n\n</think>\n\n", False),
        ("What is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
    ],
)
def test_a_prompt_may_open_the_reasoning(end: str, inside: bool) -> None:
    assert opens_reasoning(OutputFormat(think=THINK), end).starts_inside is inside
    assert opens_reasoning(OutputFormat(), end).starts_inside is False
