"""A limit for `multipleOf`, which llguidance lacks. Pure."""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import cast

MULTIPLES_MOST = 100_000
"""All `multipleOf` of a constraint, added up, and their least common multiple, which is the one of a schema that has
to be met together with others. Their automata have as many states as the number is large: this much takes half a
second, a hundred times as much a minute and more, and nothing can stop it."""
DIGITS_MOST = 12
"""Before and after the point; with more, a number is far beyond the limit, or not one that anybody counts in."""

_JSON = re.compile(r"%json\s*")


def wrong_multiples(text: str) -> str:
    """What is wrong with the `multipleOf` of a schema, as JSON; empty where nothing is.

    Raises ValueError or RecursionError where it is no JSON.
    """
    return _wrong(list(_found(_decoder().decode(text))))


def wrong_multiples_of_grammar(text: str) -> str:
    """The same of all schemas in a grammar of Lark together. What is no JSON is left to the compiler to refuse."""
    found: list[float] = []
    for start in _JSON.finditer(text):
        try:
            schema, _ = _decoder().raw_decode(text, start.end())
        except ValueError:
            continue
        except RecursionError:
            return "a schema is nested too deeply"
        found += _found(cast(object, schema))
    return _wrong(found)


def _decoder() -> json.JSONDecoder:
    """Keeps fields that come twice, and does not mind how many digits a number has."""
    return json.JSONDecoder(object_pairs_hook=list[tuple[str, object]], parse_int=float)


def _found(schema: object) -> Iterator[float]:
    """Every `multipleOf`, wherever it stands, in a schema whose objects are lists of pairs."""
    rest: list[object] = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, tuple):
            name, value = cast(tuple[str, object], part)
            if name == "multipleOf" and isinstance(value, float):
                yield value
            rest.append(value)
        elif isinstance(part, list):
            rest += cast(list[object], part)


def _wrong(multiples: list[float]) -> str:
    if any(not value > 0 for value in multiples):
        return "'multipleOf' must be above 0"
    too_many = f"all 'multipleOf' together, and their least common multiple, must not be above {MULTIPLES_MOST}"
    if any(not 10**-DIGITS_MOST < value < 10**DIGITS_MOST for value in multiples):
        return too_many
    states = [_reduced(*_scaled(value)) for value in multiples]
    return too_many if sum(states) > MULTIPLES_MOST or _common(multiples) > MULTIPLES_MOST else ""


def _common(multiples: list[float]) -> int:
    """States of the automaton that holds all of them at once."""
    numbers = [_scaled(value) for value in set(multiples)]
    places = max((one for _, one in numbers), default=0)
    common = 1
    for number, one in numbers:
        common = math.lcm(common, number * 10 ** (places - one))
        if _reduced(common, places) > MULTIPLES_MOST:
            break
    return _reduced(common, places)


def _scaled(value: float) -> tuple[int, int]:
    """A whole number, and by how many places its point is to be moved to the left: 0.25 is (25, 2)."""
    number = Decimal(str(value)).normalize()
    exponent = cast(int, number.as_tuple().exponent)
    places = max(0, -exponent)
    return int(number.scaleb(places)), places


def _reduced(number: int, places: int) -> int:
    """Without the zeros after the point."""
    while places > 0 and number % 10 == 0:
        number, places = number // 10, places - 1
    return number
