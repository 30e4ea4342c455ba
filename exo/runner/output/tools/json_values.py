"""JSON as models write it, read so that what comes out can be written again."""

import ast
import json
import math

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

DEEPEST = 200
"""Levels of nesting that are read: what goes deeper is not taken for JSON, so that nothing that walks it fails."""


def read_json(text: str) -> Json:
    """The value that `text` is. Bare line breaks in strings are taken. Raises ValueError where it is no JSON.

    Numbers that JSON cannot hold (not finite, or of thousands of digits) stay text.
    """
    try:
        value: Json = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if _depth(value) > DEEPEST:
        raise ValueError("the JSON is nested too deeply")
    return value


def read_literal(text: str) -> Json:
    """The value that `text` is as JSON or, as models write it at times, as Python. Raises ValueError for neither."""
    try:
        return read_json(text)
    except ValueError:
        try:
            literal: object = ast.literal_eval(text)
            return read_json(json.dumps(literal))
        except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError("neither JSON nor a literal of Python") from error


def write_json(value: Json) -> str:
    """The value as JSON, Unicode as it is. Half of a surrogate pair, which no UTF-8 can hold, becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def finite_number(text: str) -> int | float | None:
    """The number that a JSON literal stands for, None where it is none that JSON can hold."""
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _float_or_text(literal: str) -> float | str:
    value = float(literal)
    return value if math.isfinite(value) else literal


def _int_or_text(literal: str) -> int | str:
    try:
        return int(literal)
    except ValueError:  # longer than Python converts
        return literal


_DECODER = json.JSONDecoder(strict=False, parse_float=_float_or_text, parse_int=_int_or_text, parse_constant=str)


def _depth(value: Json) -> int:
    """Levels of lists and objects, found without recursion."""
    depth, level = 0, [value]
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
    return depth


def _children(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
