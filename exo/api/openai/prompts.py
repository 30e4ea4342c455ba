"""Texts as OpenAI's endpoints take them that know no conversation: one or several, each a text or tokens."""

from collections.abc import Sequence
from typing import Annotated, cast

from pydantic import BeforeValidator, PlainValidator
from pydantic_core import PydanticCustomError

from exo.domain.sampling import INTEGER_MOST


def _listed(value: object) -> object:
    """One or several, as several."""
    is_one = isinstance(value, str) or (isinstance(value, list) and _has_numbers(cast(list[object], value)))
    return [cast(object, value)] if is_one else value  # pyright: ignore[reportUnknownVariableType]  validated next


def _has_numbers(items: Sequence[object]) -> bool:
    return any(isinstance(item, int) for item in items)


def _prompt(value: object) -> str | tuple[int, ...]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value:
        tokens = tuple(cast(list[object], value))
        if all(type(token) is int and 0 <= token <= INTEGER_MOST for token in tokens):
            return cast(tuple[int, ...], tokens)
    raise PydanticCustomError("prompt_type", "this is to be a text or a list of token numbers, and not empty")


Prompt = Annotated[str | tuple[int, ...], PlainValidator(_prompt)]
Listed = BeforeValidator(_listed)
"""Before a list of them: one that stands alone is a list of one."""
