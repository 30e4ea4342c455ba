"""The pipeline of one generation, put together from the model's format and the request."""

from collections.abc import Collection, Sequence
from typing import Protocol

from exo.domain.messages.requests import GenerationRequest
from exo.models.output_format import OutputFormat
from exo.runner.chat import json_object
from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.harmony.text import MARKERS as HARMONY_MARKERS
from exo.runner.output.harmony.text import HarmonyText
from exo.runner.output.harmony.tokens import HarmonyTokens
from exo.runner.output.harmony.vocabulary import OpenParser
from exo.runner.output.pipeline import OutputPipeline
from exo.runner.output.reader import TextReader
from exo.runner.output.source import ReadText, TokenSource
from exo.runner.output.tools.calls import ToolSchemas
from exo.runner.output.tools.formats import SYNTAXES


class Decoding(Protocol):
    """What turns a model's tokens into text."""

    def detokenizer(self, markers: Collection[str] = (), after: Sequence[int] = ()) -> Detokenizer:
        """One that shows these markers, where a special token stands for one, for what comes after these tokens."""
        ...

    @property
    def harmony_parsers(self) -> OpenParser | None:
        """For a model of gpt-oss' vocabulary."""
        ...


def open_raw_pipeline(prompt: Sequence[int], decoding: Decoding, request: GenerationRequest) -> OutputPipeline:
    """The pipeline of a generation that continues a prompt as it stands: whatever comes is text."""
    source = ReadText(decoding.detokenizer(after=prompt), TextReader(OutputFormat(), ToolSchemas({})))
    return OutputPipeline(source, request.params.stop)


def open_pipeline(form: OutputFormat, decoding: Decoding, request: GenerationRequest) -> OutputPipeline:
    """The pipeline of a generation. What looks like a call is text where the request forbids calls, or wants a format.

    Raises Rejected where a tool's schema is no JSON object.
    """
    schemas = ToolSchemas({tool.name: json_object(tool.parameters, "tools") for tool in request.tools})
    if request.tool_choice == "none" or request.params.constraint is not None:
        form = form.replaced({"tools": None})
    calls_most = None if request.parallel_tool_calls else 1
    return OutputPipeline(_source(form, decoding, schemas), request.params.stop, calls_most)


def _source(form: OutputFormat, decoding: Decoding, schemas: ToolSchemas) -> TokenSource:
    detokenizer = decoding.detokenizer(markers(form))
    if not form.harmony:
        return ReadText(detokenizer, TextReader(form, schemas))
    if decoding.harmony_parsers is None:
        return ReadText(detokenizer, HarmonyText(schemas))
    return HarmonyTokens(decoding.harmony_parsers(), detokenizer, schemas)


def markers(form: OutputFormat) -> frozenset[str]:
    """All that a format's reader has to see."""
    if form.harmony:
        return frozenset(HARMONY_MARKERS)
    think = (form.think.open, form.think.close) if form.think else ()
    return frozenset((*think, *(SYNTAXES[form.tools].special if form.tools else ())))
