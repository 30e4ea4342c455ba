"""Where an answer begins, in the tokens of a model that may reason before it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from exo.models.output_format import OutputFormat
from exo.runner.structured.vocabulary import Vocabulary

Stage = Literal["undecided", "reasoning", "answer"]
"""Undecided: the next token may open the reasoning, or be the answer's first."""

PROMPT_END = 8
"""Tokens at a prompt's end in which a template closes reasoning, so that there is none."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's tokens around its reasoning."""

    closes: int
    """The answer begins after this token..."""
    header: tuple[int, ...] = ()
    """...where these came since the header's first was seen last."""
    opens: int | None = None
    """None: a model that always reasons first."""


def find_reasoning(vocabulary: Vocabulary, form: OutputFormat) -> Reasoning | None:
    """The tokens of a model whose output has this form; None where it does not reason, or not between single tokens.

    A Harmony model's answer is in its channel `final`; what it says on others is free.
    """
    if form.harmony:
        channel, message = vocabulary.find("<|channel|>"), vocabulary.find("<|message|>")
        if channel is None or message is None:
            return None
        return Reasoning(closes=message, header=(channel, *vocabulary.tokens.tokenize_str("final")))
    if form.think is None:
        return None
    opens, closes = vocabulary.find(form.think.open), vocabulary.find(form.think.close)
    return None if opens is None or closes is None else Reasoning(closes, opens=opens)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation has come on its way to the answer."""

    reasoning: Reasoning | None
    stage: Stage
    header: tuple[int, ...] = ()
    """Tokens since the header's first was seen last, as many as the header has."""

    @property
    def opens(self) -> int | None:
        """The token that may open reasoning now."""
        return self.reasoning.opens if self.reasoning is not None and self.stage == "undecided" else None

    def after(self, token: int) -> "Progress":
        """How far it is one token later."""
        reasoning = self.reasoning
        if reasoning is None or self.stage == "answer":
            return self
        if self.stage == "undecided":
            return replace(self, stage="reasoning" if token == reasoning.opens else "answer")
        if token == reasoning.closes and self.header == reasoning.header:
            return replace(self, stage="answer")
        return replace(self, header=_header(reasoning.header, self.header, token))


def first_progress(reasoning: Reasoning | None, prompt: Sequence[int], starts_inside: bool) -> Progress:
    """Where a generation begins that goes on with this prompt. `starts_inside`: the prompt has opened the reasoning."""
    if reasoning is None:
        return Progress(None, "answer")
    if reasoning.opens is None or starts_inside:
        return Progress(reasoning, "reasoning")
    return Progress(reasoning, "answer" if reasoning.closes in prompt[-PROMPT_END:] else "undecided")


def _header(wanted: tuple[int, ...], seen: tuple[int, ...], token: int) -> tuple[int, ...]:
    if not wanted:
        return ()
    if token == wanted[0]:
        return (token,)
    return (*seen, token) if seen and len(seen) < len(wanted) else seen
