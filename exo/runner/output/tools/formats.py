"""Each format's markers, and the blocks that they open."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from exo.models.output_format import ToolFormat
from exo.runner.output.tools import json_blocks, sections, tagged
from exo.runner.output.tools.block import Block, MarkedBlock, Markup
from exo.runner.output.tools.calls import ToolSchemas
from exo.runner.output.tools.hermes import json_calls
from exo.runner.output.tools.json_scan import ends_in_string

OpenBlock = Callable[[ToolSchemas], Block]


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """How a format's calls begin."""

    openers: Mapping[str, OpenBlock]
    """The markers, each with the block that it opens."""
    strays: Mapping[str, str]
    """The opener of a block, and a marker that means nothing after it."""
    ignored: tuple[str, ...] = ()
    """Markers that mean nothing anywhere."""
    bare: Callable[[ToolSchemas, str], Block] | None = None
    """What a brace opens, and the white space before it, in a format without markers: where an answer begins, after
    each call, and after an ignored marker."""
    special: tuple[str, ...] = ()
    """All that may be special tokens, and must be seen nevertheless."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Those that stand outside blocks."""
        return (*self.openers, *self.ignored)


def _marked(*markups: Markup) -> ToolSyntax:
    within = [(markup.open, markup.close, markup.item_open, markup.item_close) for markup in markups]
    return ToolSyntax(
        openers={markup.open: partial(MarkedBlock, markup) for markup in markups},
        strays={markup.open: markup.stray_close for markup in markups if markup.stray_close},
        special=tuple({marker for markers in within for marker in markers if marker}),
    )


def _dsml(outer: str) -> ToolSyntax:
    return _marked(
        Markup(
            open=f"<｜DSML｜{outer}>",
            close=f"</｜DSML｜{outer}>",
            item_open="<｜DSML｜invoke name=",
            item_close="</｜DSML｜invoke>",
            read=tagged.dsml_calls,
            is_value_open=tagged.opened("<｜DSML｜parameter", "</｜DSML｜parameter>"),
        )
    )


def _with_special(syntax: ToolSyntax, *more: str) -> ToolSyntax:
    return replace(syntax, special=(*syntax.special, *more))


_HERMES = _marked(
    Markup(
        open="<tool_call>",
        close="</tool_call>",
        read=json_calls,
        begins=re.compile(r"\s*([{\[].*)?", re.DOTALL),
        is_value_open=ends_in_string,
    )
)
_QWEN3_CODER = _marked(
    Markup(
        open="<tool_call>",
        close="</tool_call>",
        read=tagged.function_calls,
        begins=re.compile(r"\s*([<{\[].*)?", re.DOTALL),
        is_value_open=tagged.opened("<parameter=", "</parameter>"),
    ),
    Markup(
        # The model leaves the outer marker out at times.
        open="<function=",
        close="</function>",
        read=lambda body: tagged.function_calls(f"<function={body}</function>"),
        is_value_open=tagged.opened("<parameter=", "</parameter>"),
        stray_close="</tool_call>",
    ),
)
_in_arg_value = tagged.opened("<arg_value>", "</arg_value>")
_GLM = _marked(
    Markup(
        open="<tool_call>",
        close="</tool_call>",
        read=tagged.glm_calls,
        begins=re.compile(r"\s*(\{.*|[^\s<>{]+\s*(<.*)?)?", re.DOTALL),
        is_value_open=lambda body: ends_in_string(body) if body.lstrip().startswith("{") else _in_arg_value(body),
    )
)
_KIMI = _marked(
    Markup(
        open="<|tool_calls_section_begin|>",
        close="<|tool_calls_section_end|>",
        item_open="<|tool_call_begin|>",
        item_close="<|tool_call_end|>",
        read=sections.kimi_calls,
    ),
    Markup(
        # The model leaves the section's marker out at times.
        open="<|tool_call_begin|>",
        close="<|tool_call_end|>",
        read=sections.kimi_calls,
        stray_close="<|tool_calls_section_end|>",
    ),
)
_MINIMAX = _marked(
    Markup(
        open="<minimax:tool_call>",
        close="</minimax:tool_call>",
        item_open="<invoke name=",
        item_close="</invoke>",
        read=tagged.invoke_calls,
        is_value_open=tagged.opened("<parameter name=", "</parameter>"),
    )
)
_DEEPSEEK = _marked(
    Markup(
        open="<｜tool▁calls▁begin｜>",
        close="<｜tool▁calls▁end｜>",
        item_open="<｜tool▁call▁begin｜>",
        item_close="<｜tool▁call▁end｜>",
        read=sections.deepseek_calls,
    )
)
_MISTRAL = ToolSyntax(
    openers={json_blocks.TOOL_CALLS: json_blocks.MistralBlock},
    strays={},
    special=(json_blocks.TOOL_CALLS, json_blocks.ARGS, json_blocks.CALL_ID),
)
_LLAMA3 = ToolSyntax(
    openers={}, strays={}, ignored=("<|python_tag|>",), bare=json_blocks.BareJsonBlock, special=("<|python_tag|>",)
)

SYNTAXES: Mapping[ToolFormat, ToolSyntax] = {
    "hermes": _HERMES,
    "qwen3_coder": _QWEN3_CODER,
    "llama3_json": _LLAMA3,
    "mistral_json": _MISTRAL,
    "mistral_v11": _MISTRAL,
    "mistral_args": _MISTRAL,
    "glm": _GLM,
    "kimi_k2": _with_special(_KIMI, sections.KIMI_ARGUMENTS),
    "minimax_m2": _MINIMAX,
    "deepseek_v3": _with_special(_DEEPSEEK, sections.DEEPSEEK_SEPARATOR),
    "deepseek_v31": _with_special(_DEEPSEEK, sections.DEEPSEEK_SEPARATOR),
    "deepseek_v32": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls"),
}
