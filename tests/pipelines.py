"""Output pipelines for tests."""

from collections.abc import Sequence

from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.runner.engines.base import Tokenizer
from exo.runner.output.format import OutputFormat
from exo.runner.output.opening import open_pipeline
from exo.runner.output.pipeline import OutputPipeline, PipelineResult
from exo.runner.output.segments import Text

PLAIN = OutputFormat()


def pipeline_of(tokenizer: Tokenizer, stop: Sequence[str] = (), form: OutputFormat = PLAIN) -> OutputPipeline:
    """The pipeline of a request that only has stop sequences."""
    request = GenerationRequest(messages=(), params=SamplingParams(stop=tuple(stop)))
    return open_pipeline(form, tokenizer, request)


def text_of(result: PipelineResult) -> str:
    """The answer's text among a result's segments."""
    return "".join(segment.text for segment in result.segments if isinstance(segment, Text))
