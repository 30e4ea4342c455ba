"""The pipeline of one generation, put together from the model's format and the request."""

from collections.abc import Callable, Collection

from exo.domain.messages.requests import GenerationRequest
from exo.runner.chat import json_object
from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.format import OutputFormat
from exo.runner.output.harmony.text import MARKERS as HARMONY_MARKERS
from exo.runner.output.harmony.text import HarmonyText
from exo.runner.output.pipeline import OutputPipeline
from exo.runner.output.reader import TextReader
from exo.runner.output.source import ReadText
from exo.runner.output.tools.calls import ToolSchemas
from exo.runner.output.tools.formats import SYNTAXES

OpenDetokenizer = Callable[[Collection[str]], Detokenizer]
"""Makes a detokenizer that shows these markers, where a special token stands for one."""


def open_pipeline(form: OutputFormat, detokenizer: OpenDetokenizer, request: GenerationRequest) -> OutputPipeline:
    """The pipeline of a generation. Where the request forbids calls, what looks like one is text.

    Raises Rejected where a tool's schema is no JSON object.
    """
    schemas = ToolSchemas({tool.name: json_object(tool.parameters, "tools") for tool in request.tools})
    if request.tool_choice == "none":
        form = form.replaced({"tools": None})
    reader = HarmonyText(schemas) if form.harmony else TextReader(form, schemas)
    source = ReadText(detokenizer(markers(form)), reader)
    return OutputPipeline(source, request.params.stop, calls_most=None if request.parallel_tool_calls else 1)


def markers(form: OutputFormat) -> frozenset[str]:
    """All that a format's reader has to see."""
    if form.harmony:
        return frozenset(HARMONY_MARKERS)
    think = (form.think.open, form.think.close) if form.think else ()
    return frozenset((*think, *(SYNTAXES[form.tools].special if form.tools else ())))
