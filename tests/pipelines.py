"""Output pipelines for tests, and what comes out of them."""

from collections.abc import Sequence

from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.models.output_format import OutputFormat
from exo.runner.engines.base import Tokenizer
from exo.runner.output.opening import open_pipeline
from exo.runner.output.pipeline import OutputPipeline, PipelineResult
from exo.runner.output.segments import Reasoning, Segment, Text

PLAIN = OutputFormat()


def pipeline_of(tokenizer: Tokenizer, stop: Sequence[str] = (), form: OutputFormat = PLAIN) -> OutputPipeline:
    """The pipeline of a request that only has stop sequences."""
    request = GenerationRequest(messages=(), params=SamplingParams(stop=tuple(stop)))
    return open_pipeline(form, tokenizer, request)


def text_of(result: PipelineResult) -> str:
    """The answer's text among a result's segments."""
    return "".join(segment.text for segment in result.segments if isinstance(segment, Text))


def joined(segments: Sequence[Segment]) -> list[Segment]:
    """The same with neighbours of one kind as one, as a client sees them."""
    together: list[Segment] = []
    for segment in segments:
        last = together[-1] if together else None
        if isinstance(segment, Text) and isinstance(last, Text):
            together[-1] = Text(last.text + segment.text)
        elif isinstance(segment, Reasoning) and isinstance(last, Reasoning):
            together[-1] = Reasoning(last.text + segment.text)
        else:
            together.append(segment)
    return together
