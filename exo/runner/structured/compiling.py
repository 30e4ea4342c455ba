"""From a constraint to what holds a generation to it."""

from collections.abc import Sequence

from llguidance import LLMatcher

from exo.domain.constraint import Constraint
from exo.domain.messages.requests import GenerationRequest
from exo.models.output_format import OutputFormat
from exo.runner.structured.grammars import grammar_of, invalid
from exo.runner.structured.guide import Guide
from exo.runner.structured.reasoning import find_reasoning, first_progress
from exo.runner.structured.said import short
from exo.runner.structured.tools import grammar_of_calls
from exo.runner.structured.vocabulary import Vocabulary


class Constraints:
    """Compiles for answers that are written in one form, of one model."""

    __slots__ = ("_form", "_reasoning", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, form: OutputFormat) -> None:
        self._vocabulary = vocabulary
        self._form = form
        self._reasoning = find_reasoning(vocabulary, form)

    def wanted(self, request: GenerationRequest) -> Constraint | None:
        """What an answer is to be held to: calls where they are demanded.

        Raises Rejected where calls are demanded that cannot be enforced.
        """
        if request.tool_choice == "required":
            return grammar_of_calls(request, self._form.tools, self._vocabulary.marker)
        return request.params.constraint

    def guide(self, constraint: Constraint, prompt: Sequence[int]) -> Guide:
        """For one generation. It takes milliseconds, of a huge schema seconds: not for a thread that others wait for.

        Raises Rejected `invalid_response_format`, with the constraint's parameter, where there is no such grammar.
        """
        if self._form.starts_inside and self._reasoning is None:
            raise invalid(constraint, "no token shows where this model's reasoning ends and its answer begins")
        grammar = grammar_of(constraint)
        matcher = LLMatcher(self._vocabulary.tokens, grammar, log_level=0)
        if matcher.is_error():
            raise invalid(constraint, short(matcher.get_error()))
        progress = first_progress(self._reasoning, prompt, self._form.starts_inside)
        guide = Guide(matcher, progress, constraint.param, grammar)
        guide.prepare()
        if guide.problem:
            raise invalid(constraint, short(guide.problem))
        return guide
