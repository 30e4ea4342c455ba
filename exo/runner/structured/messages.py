"""What the process that tries formats is told, and what it answers: lines of JSON."""

from exo.domain.base import Frozen
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.models.output_format import OutputFormat
from exo.runner.structured.vocabulary import VocabularySource


class TrialSource(Frozen):
    """The first line: the model, and how much a trial may take."""

    vocabulary: VocabularySource
    seconds: float
    memory_bytes: int
    """Of address space, the vocabulary's included."""


class TrialRequest(Frozen):
    """Each further line, after its number and a blank: what an answer is to be held to."""

    form: OutputFormat
    request: GenerationRequest


class TrialVerdict(Frozen):
    """The answer, in any order: it fits, or is refused with a reason, or took more than it may."""

    number: int
    fits: bool = False
    reason: str = ""
    code: str = ""
    param: str | None = None


def trial_request(request: GenerationRequest, form: OutputFormat) -> TrialRequest:
    """Only what has to do with the form, so that the same form is the same text."""
    asked = GenerationRequest(messages=(), params=SamplingParams(constraint=request.params.constraint))
    if request.tool_choice == "required":
        calls = ("tools", "tool_choice", "tool_name", "parallel_tool_calls")
        asked = asked.replaced({name: getattr(request, name) for name in calls})
    return TrialRequest(form=form, request=asked)
