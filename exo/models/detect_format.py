"""Which format a model's output has, from what its makers ship with it."""

from collections.abc import Collection, Mapping

from exo.models.output_format import OutputFormat, ThinkTags, ToolFormat

THINK_TAGS = (
    ThinkTags(open="<think>", close="</think>"),
    ThinkTags(open="[THINK]", close="[/THINK]"),
    ThinkTags(open="<seed:think>", close="</seed:think>"),
    ThinkTags(open="<longcat_think>", close="</longcat_think>"),
    ThinkTags(open="<|think:start|>", close="<|think:end|>"),
    ThinkTags(open="<|START_THINKING|>", close="<|END_THINKING|>"),
    ThinkTags(open="<thinking>", close="</thinking>"),
    ThinkTags(open="<reasoning>", close="</reasoning>"),
)

_IN_TEMPLATE: Mapping[str, ToolFormat] = {
    "<｜DSML｜tool_calls>": "deepseek_v4",
    "｜DSML｜": "deepseek_v32",
    "<minimax:tool_call>": "minimax_m2",
    "<arg_key>": "glm",
    "<function=": "qwen3_coder",
    "<|tool_calls_section_begin|>": "kimi_k2",
    "[ARGS]": "mistral_args",
    "[TOOL_CALLS] [": "mistral_json",
    "[TOOL_CALLS][": "mistral_json",
    "[TOOL_CALLS]": "mistral_v11",
    "<tool_call>": "hermes",
    "<|python_tag|>": "llama3_json",
}
"""What a chat template says of calls. The first that is there counts."""
_IN_VOCABULARY: Mapping[str, ToolFormat] = {
    "｜DSML｜": "deepseek_v32",
    "<|tool_calls_section_begin|>": "kimi_k2",
    "<minimax:tool_call>": "minimax_m2",
    "<arg_key>": "glm",
    "<｜tool▁calls▁begin｜>": "deepseek_v31",
    "[TOOL_CALLS]": "mistral_v11",
    "<tool_call>": "hermes",
    "<|python_tag|>": "llama3_json",
}
"""Tokens for calls, of models whose template does not show them, or that have none."""
_HARMONY = ("<|start|>", "<|channel|>", "<|message|>")


def detect_format(template: str, added_tokens: Collection[str]) -> OutputFormat:
    """The format of a model with this chat template and these tokens besides those of ordinary text."""
    if all(token in added_tokens for token in _HARMONY):
        return OutputFormat(harmony=True)
    return OutputFormat(tools=_tools(template, added_tokens), think=_think(template, added_tokens))


def _tools(template: str, added_tokens: Collection[str]) -> ToolFormat | None:
    if "<｜tool▁calls▁begin｜>" in template:
        return "deepseek_v3" if "```json" in template else "deepseek_v31"
    for mark, form in _IN_TEMPLATE.items():
        if mark in template:
            return form
    for mark, form in _IN_VOCABULARY.items():
        if mark in added_tokens:
            return form
    return None


def _think(template: str, added_tokens: Collection[str]) -> ThinkTags | None:
    for tags in THINK_TAGS:
        if tags.close in template or (tags.open in added_tokens and tags.close in added_tokens):
            return tags
    return None


def opens_reasoning(form: OutputFormat, prompt_end: str) -> OutputFormat:
    """The format of an answer to a prompt with this end: some templates open the reasoning there."""
    inside = form.think is not None and prompt_end.rstrip().endswith(form.think.open)
    return form.replaced({"starts_inside": inside}) if inside else form
