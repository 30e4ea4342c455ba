"""One grammar of reasoning and answer together allows what the guide allows, token by token."""

from collections.abc import Sequence

import pytest
from llguidance import LLMatcher

from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.errors import Rejected
from exo.runner.structured.grammars import grammar_of
from exo.runner.structured.guide import Guide
from exo.runner.structured.reasoning import Progress, Reasoning, first_progress
from exo.runner.structured.vocabulary import Vocabulary
from exo.runner.structured.whole import whole_grammar

OPENS, CLOSES = 90, 91
"""Ordinary tokens of this vocabulary, in the places of special ones."""
THINKS = Reasoning(closes=CLOSES, opens=OPENS)
ALWAYS_THINKS = Reasoning(closes=CLOSES)
CHANNELS = Reasoning(closes=CLOSES, header=(OPENS, 95))

CONSTRAINTS: Sequence[tuple[Constraint, str]] = [
    (JsonObject(), '{"a": [1, "/"]}'),
    (JsonSchema(text='{"type": "object", "properties": {"é/": {"type": "integer"}}}'), '{"é/": 5}'),
    (Regex(pattern=r"[0-9]+/\\n"), r"12/\n"),
    (Choice(choices=('a"b', "two")), 'a"b'),
    (Grammar(text='start: "x" inner\ninner: "y" inner | "z" start | "!"'), "xyyzx!"),
]


def guide_of(vocabulary: Vocabulary, constraint: Constraint, progress: Progress) -> Guide:
    grammar = grammar_of(constraint)
    matcher = LLMatcher(vocabulary.tokens, grammar)
    assert not matcher.is_error(), matcher.get_error()
    return Guide(matcher, progress, "response_format", grammar)


def check_alike(vocabulary: Vocabulary, guide: Guide, tokens: Sequence[int]) -> None:
    """Before each token, and after the last."""
    whole = LLMatcher(vocabulary.tokens, whole_grammar(guide))
    assert not whole.is_error(), whole.get_error()
    ends = set(vocabulary.tokens.eos_tokens)
    for token in [*tokens, None]:
        allowed, mask = guide.allowed(), whole.compute_logit_bias()
        looked_at = [one for one in range(200) if one not in ends]
        assert [bool(mask[one]) for one in looked_at] == [allowed is None or bool(allowed[one]) for one in looked_at]
        if token is not None:
            guide.take(token)
            assert whole.consume_token(token)


@pytest.mark.parametrize(("constraint", "text"), CONSTRAINTS, ids=[one.type for one, _ in CONSTRAINTS])
@pytest.mark.parametrize(
    ("reasoning", "before"),
    [
        (None, []),
        (THINKS, []),
        (THINKS, [OPENS, 60, OPENS, 61, CLOSES]),
        (ALWAYS_THINKS, [60, 61, CLOSES]),
        (CHANNELS, [OPENS, 95, CLOSES]),
        (CHANNELS, [60, CLOSES, OPENS, 70, CLOSES, 60, CLOSES, OPENS, OPENS, 95, 60, OPENS, 95, 61, CLOSES]),
    ],
    ids=["no reasoning", "none this time", "tags", "always", "one channel", "channels"],
)
def test_it_is_alike_at_every_token(
    vocabulary: Vocabulary, constraint: Constraint, text: str, reasoning: Reasoning | None, before: list[int]
) -> None:
    guide = guide_of(vocabulary, constraint, first_progress(reasoning, [1, 2], starts_inside=False))
    check_alike(vocabulary, guide, [*before, *vocabulary.tokens.tokenize_str(text)])


def test_channels_whose_names_are_several_tokens_are_refused(vocabulary: Vocabulary) -> None:
    several = Reasoning(closes=CLOSES, header=(OPENS, 95, 96))
    guide = guide_of(vocabulary, JsonObject(), first_progress(several, [1], starts_inside=False))
    with pytest.raises(Rejected, match="several tokens"):
        whole_grammar(guide)
