"""Constraints as llguidance's grammars. Pure."""

import json
from collections.abc import Iterator
from typing import assert_never, cast

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.errors import Rejected

WHITESPACE = r"[\x20\x0A\x0D\x09]{1,40}"
"""Between JSON's tokens: enough to indent. Without a bound, a small model can go on with blanks until its limit."""

MULTIPLES_MOST = 200_000
"""All `multipleOf` of a schema together. Their automata have as many states as the number is large: this much takes
half a second, ten times as much a quarter of a minute, and nothing can stop it."""


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
            return LLMatcher.grammar_from_regex(constraint.pattern)
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
    except (ValueError, RecursionError) as error:
        raise invalid(constraint, f"the schema is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise invalid(constraint, "a JSON schema must be an object, true or false")
    if sum(_multiples(cast(object, schema))) > MULTIPLES_MOST:
        raise invalid(constraint, f"all 'multipleOf' together must not be above {MULTIPLES_MOST}")
    return cast(object, schema)


def _multiples(schema: object) -> Iterator[float]:
    """Every `multipleOf` in a schema, wherever it stands."""
    rest: list[object] = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            fields = cast(dict[str, object], part)
            multiple = fields.get("multipleOf")
            if isinstance(multiple, int | float):
                yield multiple
            rest += fields.values()
        elif isinstance(part, list):
            rest += cast(list[object], part)


def _lark(constraint: Grammar) -> str:
    """Lark as it is, and GBNF, which llama.cpp's users write, translated."""
    if constraint.text.lstrip().startswith("{"):
        raise invalid(constraint, "the grammar must be in Lark's syntax, and begin with a rule")
    try:
        return LLMatcher.grammar_from_lark(any_to_lark(constraint.text))
    except Exception as error:  # the translation raises nothing more precise
        raise invalid(constraint, next(iter(str(error).splitlines()), "it cannot be read")) from error
