"""Constraints on the vocabulary of a real model: what compiles, what is refused, what may come next."""

import json

import pytest

from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.errors import Rejected
from exo.models.output_format import OutputFormat, ThinkTags
from exo.runner.structured.compiling import Constraints
from exo.runner.structured.guide import Guide
from exo.runner.structured.reasoning import Progress, Reasoning, find_reasoning, first_progress
from exo.runner.structured.vocabulary import Vocabulary

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def constraints(vocabulary: Vocabulary) -> Constraints:
    return Constraints(vocabulary, OutputFormat())


def schema(value: object, strict: bool = True) -> JsonSchema:
    return JsonSchema(text=json.dumps(value), strict=strict)


def accepts(guide: Guide, vocabulary: Vocabulary, text: str) -> bool:
    """Whether a whole text may come, and the answer may end after it and not before it has begun."""
    ends = vocabulary.tokens.eos_tokens
    for token in vocabulary.tokens.tokenize_str(text):
        allowed = guide.allowed()
        if allowed is None or not allowed[token]:
            return False
        guide.take(token)
    allowed = guide.allowed()
    return allowed is not None and all(allowed[end] for end in ends)


@pytest.mark.parametrize(
    ("constraint", "right", "wrong"),
    [
        (schema(PERSON), '{"name": "Ann", "age": 7}', '{"name": "Ann"}'),
        (schema(PERSON), '{\n    "name": "Ann",\n    "age": 7\n}', '{"name": "Ann", "age": -7}'),
        (JsonObject(), '{"a": [1, null, {"b": "c"}]}', "[1]"),
        (Regex(pattern="[0-9]{3}-[a-z]+"), "123-abc", "12-abc"),
        (Regex(pattern=r"\d+"), "12", "१२"),
        (Regex(pattern=r"[^\d]\D[\W]"), "११é", "1१é"),
        (Regex(pattern=r"[\w.]+\s"), "a.Z_9 ", "é "),
        (Regex(pattern=r"\\d\."), "\\d.", "1."),
        (schema({"type": "string", "pattern": r"^[\d]\d\w$"}), '"12a"', '"1१a"'),
        (schema({"type": "string", "pattern": r"^\w$"}), '"a"', '"é"'),
        (schema({"type": "string", "pattern": r"^\D\W$"}), '"१é"', '"1é"'),
        (Choice(choices=("yes", "yes, but")), "yes", "no"),
        (Choice(choices=("yes", "yes, but")), "yes, but", "yes, b"),
        (Choice(choices=('a "quoted" \\ text', "Zürich\n\t–")), "Zürich\n\t–", "Zurich"),
        (Choice(choices=('a "quoted" \\ text', "Zürich\n\t–")), 'a "quoted" \\ text', "a quoted"),
        (Grammar(text='start: "a" b+\nb: "b" | "c"'), "abcb", "a"),
        (Grammar(text='root ::= "a" b+\nb ::= "b" | "c"'), "abcb", "a"),
    ],
)
def test_a_guide_lets_through_what_is_right_and_nothing_else(
    constraints: Constraints, vocabulary: Vocabulary, constraint: Constraint, right: str, wrong: str
) -> None:
    assert accepts(constraints.guide(constraint, []), vocabulary, right)
    assert not accepts(constraints.guide(constraint, []), vocabulary, wrong)


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (JsonSchema(text="{broken"), "not JSON"),
        (JsonSchema(text="5"), "an object"),
        (schema({"type": "colour"}), "colour"),
        (schema({"$ref": "#/nowhere"}), "nowhere"),
        (schema({"$ref": "#"}), ""),
        (schema({"type": "string", "pattern": "("}), "regex"),
        (schema({"type": "string", "not": {"type": "string"}}), "not"),
        (schema({"allOf": [{"type": "string"}, {"type": "integer"}]}), "incompatible"),
        (schema({"type": "integer", "multipleOf": 100000007}), "multipleOf"),
        (schema({"type": "integer", "multipleOf": -3}), "above 0"),
        (schema({"type": "integer", "multipleOf": 0}), "above 0"),
        (schema({"anyOf": [{"multipleOf": 300000017}, {"multipleOf": -300000017}]}), "above 0"),
        (schema({"allOf": [{"type": "integer", "multipleOf": 9973}, {"multipleOf": 9967}]}), "multipleOf"),
        (JsonSchema(text='{"type":"integer","multipleOf":300000017,"multipleOf":1}'), "multipleOf"),
        (JsonSchema(text="false"), "false"),
        (schema({"type": "integer", "minimum": 1e300}), "'minimum'"),
        (schema({"type": "number", "maximum": 1e300, "minimum": 0}), "'maximum'"),
        (Grammar(text='start: %json {"type":"integer","multipleOf":300000017}'), "multipleOf"),
        (Grammar(text='start: a\na: "x" %json\n{"type":"integer","multiple\\u004ff":300000017}'), "multipleOf"),
        (Grammar(text="start: A\nA: /a/ & /b/"), "no text that meets it"),
        (JsonSchema(text='{"items":' * 5000 + "{}" + "}" * 5000), ""),
        (JsonSchema(text='{"items":' * 500 + "{}" + "}" * 500), ""),
        (Regex(pattern="(a"), "regex"),
        (Regex(pattern="(?=a)b"), "look"),
        (Regex(pattern="(" * 5000 + "a" + ")" * 5000), "regex"),
        (Grammar(text="start: nothing"), "nothing"),
        (Grammar(text="root ::= ("), "root"),
        (Grammar(text='{"grammars": []}'), "Lark"),
        (Grammar(text=""), ""),
        (Grammar(text="start: " + "(" * 20_000 + '"a"' + ")" * 20_000), "nested"),
        (schema({"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(20_000)}}), "large"),
    ],
)
def test_what_cannot_be_held_is_refused_with_the_parameter(
    constraints: Constraints, constraint: Constraint, reason: str
) -> None:
    with pytest.raises(Rejected) as refusal:
        constraints.guide(constraint.model_copy(update={"param": "guided_json"}), [])
    assert (refusal.value.code, refusal.value.param) == ("invalid_response_format", "guided_json")
    assert reason in refusal.value.reason
    assert len(refusal.value.reason) < 400
    assert "<state>" not in refusal.value.reason


def test_what_cannot_be_enforced_is_left_out_of_a_schema_that_is_not_strict(
    constraints: Constraints, vocabulary: Vocabulary
) -> None:
    unique = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    assert accepts(constraints.guide(schema(unique, strict=False), []), vocabulary, "[1, 2]")
    with pytest.raises(Rejected, match="uniqueItems"):
        constraints.guide(schema(unique), [])


@pytest.mark.parametrize("multiples", [(0.01, 10_000), (0.5, 0.25, 15, 1000), (99_991,)])
def test_usual_multiples_are_held(
    constraints: Constraints, vocabulary: Vocabulary, multiples: tuple[float, ...]
) -> None:
    fields = {f"f{number}": {"type": "number", "multipleOf": one} for number, one in enumerate(multiples)}
    wanted = schema({"type": "object", "properties": fields, "required": ["f0"], "additionalProperties": False})
    assert accepts(constraints.guide(wanted, []), vocabulary, json.dumps({"f0": multiples[0]}))


def test_blanks_do_not_go_on_for_ever(constraints: Constraints, vocabulary: Vocabulary) -> None:
    guide = constraints.guide(JsonObject(), [])
    (brace,), (blank,) = vocabulary.tokens.tokenize_str("{"), vocabulary.tokens.tokenize_str(" ")
    guide.take(brace)
    for _ in range(40):
        allowed = guide.allowed()
        assert allowed is not None
        assert allowed[blank]
        guide.take(blank)
    allowed = guide.allowed()
    assert allowed is not None
    assert not allowed[blank]


def test_a_step_that_is_made_again_goes_back_by_a_token(constraints: Constraints, vocabulary: Vocabulary) -> None:
    guide = constraints.guide(Regex(pattern="abc|axy"), [])
    a, b, x = (vocabulary.tokens.tokenize_str(text)[0] for text in "abx")
    guide.take(a)
    before = guide.allowed()
    guide.take(b)
    guide.undo()
    assert guide.allowed() == before
    guide.take(x)
    assert guide.problem == ""
    assert guide.taken == 2


def test_a_marker_that_is_a_special_token_is_that_token(constraints: Constraints, vocabulary: Vocabulary) -> None:
    assert json.loads(vocabulary.marker("<tool_call>")) == "<tool_call>"
    start = vocabulary.find("<|im_start|>")
    guide = constraints.guide(Grammar(text=f'start: {vocabulary.marker("<|im_start|>")} "a"'), [])
    allowed = guide.allowed()
    assert allowed is not None
    assert [token for token, byte in enumerate(allowed) if byte] == [start]


def after(progress: Progress, tokens: list[int]) -> str:
    for token in tokens:
        progress = progress.after(token)
    return progress.stage


THINKS = Reasoning(closes=91, opens=90)
HARMONY = Reasoning(closes=82, header=(80, 81))


@pytest.mark.parametrize(
    ("reasoning", "prompt", "tokens", "stage"),
    [
        (None, [90], [], "answer"),
        (THINKS, [1, 2], [], "undecided"),
        (THINKS, [1, 2], [5], "answer"),
        (THINKS, [1, 2], [90, 5, 6], "reasoning"),
        (THINKS, [1, 2], [90, 5, 91], "answer"),
        (THINKS, [90, 3, 91, 3], [], "answer"),
        (THINKS, [90, 91, *[1] * 20], [], "undecided"),
        (THINKS, [1, 90, 3], [], "undecided"),
        (HARMONY, [1], [80, 70, 82, 5], "reasoning"),
        (HARMONY, [1], [80, 81, 82], "answer"),
        (HARMONY, [1], [80, 81, 7, 7, 82], "answer"),
        (HARMONY, [1], [80, 70, 81, 82], "reasoning"),
        (HARMONY, [1], [80, 81, 80, 70, 82], "reasoning"),
        (HARMONY, [1], [80, 70, 82, 5, 80, 81, 82], "answer"),
    ],
)
def test_the_answer_begins_after_the_reasoning(
    reasoning: Reasoning | None, prompt: list[int], tokens: list[int], stage: str
) -> None:
    assert after(first_progress(reasoning, prompt, starts_inside=False), tokens) == stage


@pytest.mark.parametrize(("tokens", "stage"), [([5], "reasoning"), ([91], "answer")])
def test_the_answer_begins_after_reasoning_that_the_prompt_has_opened(tokens: list[int], stage: str) -> None:
    assert after(first_progress(THINKS, [1, 90, 3], starts_inside=True), tokens) == stage


def test_a_model_is_known_to_reason_by_its_form(vocabulary: Vocabulary) -> None:
    tags = ThinkTags(open="<|im_start|>", close="<|im_end|>")  # of which this vocabulary has a token each
    assert find_reasoning(vocabulary, OutputFormat(think=tags)) == Reasoning(closes=2, opens=1)
    assert find_reasoning(vocabulary, OutputFormat()) is None
    assert find_reasoning(vocabulary, OutputFormat(harmony=True)) is None


def test_reasoning_without_a_token_at_its_end_cannot_be_told_from_the_answer(vocabulary: Vocabulary) -> None:
    form = OutputFormat(think=ThinkTags(open="<think>", close="</think>"), starts_inside=True)
    with pytest.raises(Rejected, match="reasoning"):
        Constraints(vocabulary, form).guide(JsonObject(), [])
    assert Constraints(vocabulary, form.replaced({"starts_inside": False})).guide(JsonObject(), []).problem == ""


def test_reasoning_is_free_and_the_answer_is_held(vocabulary: Vocabulary, constraints: Constraints) -> None:
    from llguidance import LLMatcher

    grammar = LLMatcher.grammar_from_regex("[0-9]")
    matcher = LLMatcher(vocabulary.tokens, grammar)
    guide = Guide(matcher, first_progress(THINKS, [1, 2], starts_inside=False), "guided_regex", grammar)
    a, digit = (vocabulary.tokens.tokenize_str(text)[0] for text in "a7")
    first = guide.allowed()
    assert first is not None
    assert first[90]
    assert not first[a]
    guide.take(90)
    assert guide.allowed() is None
    for token in (a, 91):
        guide.take(token)
    answer = guide.allowed()
    assert answer is not None
    assert answer[digit]
    assert not answer[a]
    assert not answer[90]
    guide.undo()
    assert guide.allowed() is None
    guide.take(91)
    guide.take(digit)
    last = guide.allowed()
    assert last is not None
    assert [token for token, byte in enumerate(last) if byte] == sorted(vocabulary.tokens.eos_tokens)
