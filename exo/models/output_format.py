"""How one model marks its reasoning and its calls of tools."""

from typing import Annotated, Literal

from pydantic import Field

from exo.domain.base import Frozen

ToolFormat = Literal[
    "hermes",
    "qwen3_coder",
    "llama3_json",
    "mistral_json",
    "mistral_v11",
    "mistral_args",
    "glm",
    "kimi_k2",
    "minimax_m2",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "deepseek_v4",
]
"""The forms in which calls are read; `exo/runner/output/tools/formats.py` says what each looks like."""

Marker = Annotated[str, Field(min_length=1)]


class ThinkTags(Frozen):
    """Between these the model thinks."""

    open: Marker
    close: Marker


class OutputFormat(Frozen):
    """What the output of one generation is read by."""

    tools: ToolFormat | None = None
    think: ThinkTags | None = None
    starts_inside: bool = False
    """Whether the prompt's end has opened the reasoning."""
    harmony: bool = False
    """Whether the output is Harmony's messages, which have reasoning and calls of their own."""
