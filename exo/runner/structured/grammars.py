"""Constraints as llguidance's grammars. Pure."""

import json
from typing import assert_never, cast

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.errors import Rejected
from exo.runner.structured.multiples import wrong_multiples, wrong_multiples_of_grammar
from exo.runner.structured.patterns import ascii_classes

WHITESPACE = r"[\x20\x0A\x0D\x09]{1,40}"
"""Between JSON's tokens: enough to indent. Without a bound, a small model can go on with blanks until its limit."""


def invalid(constraint: Constraint, reason: str) -> Rejected:
    """The refusal of a constraint that cannot be held."""
    return Rejected(f"{constraint.param}: {reason}", code="invalid_response_format", param=constraint.param)


def grammar_of(constraint: Constraint) -> str:
    """The grammar. Raises Rejected where it can be seen already that there is none; the rest shows in compiling."""
    match constraint:
        case JsonObject():
            return _json(constraint, {"type": "object"}, lenient=False)
        case JsonSchema():
            return _json(constraint, _schema(constraint), lenient=not constraint.strict)
        case Regex():
            return LLMatcher.grammar_from_regex(ascii_classes(constraint.pattern))
        case Choice():
            return LLMatcher.grammar_from_lark("start: " + " | ".join(quoted(text) for text in constraint.choices))
        case Grammar():
            return _lark(constraint)
        case _:
            assert_never(constraint)


def quoted(text: str) -> str:
    """`text` as a literal of Lark."""
    return json.dumps(text, ensure_ascii=False)


def _json(constraint: Constraint, schema: object, *, lenient: bool) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE, "lenient": lenient}
        )
    except (ValueError, RecursionError) as error:
        raise invalid(constraint, f"the schema cannot be read: {error}") from error


def _schema(constraint: JsonSchema) -> object:
    try:
        schema: object = json.loads(constraint.text)
        wrong = wrong_multiples(constraint.text)
    except (ValueError, RecursionError) as error:
        raise invalid(constraint, f"the schema is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise invalid(constraint, "a JSON schema must be an object or true")
    if schema is False:
        raise invalid(constraint, "no answer is valid by the schema 'false'")
    if wrong:
        raise invalid(constraint, wrong)
    return cast(object, schema)


def _lark(constraint: Grammar) -> str:
    """Lark as it is, and GBNF, which llama.cpp's users write, translated."""
    if constraint.text.lstrip().startswith("{"):
        raise invalid(constraint, "the grammar must be in Lark's syntax, and begin with a rule")
    try:
        text = any_to_lark(constraint.text)
    except Exception as error:  # the translation raises nothing more precise
        raise invalid(constraint, next(iter(str(error).splitlines()), "it cannot be read")) from error
    if wrong := wrong_multiples_of_grammar(text):
        raise invalid(constraint, wrong)
    return LLMatcher.grammar_from_lark(text)
