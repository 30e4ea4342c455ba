"""What data looks like, apart from what is said about it; above all State, which must not be mistaken for another."""

import hashlib
import json
from functools import cache
from typing import cast

from pydantic import BaseModel

from exo.domain.state import State

FOLD = 1
"""Raised by one when the same events come to give another State: what was made of them before is then of no use."""

Data = dict[str, "Data"] | list["Data"] | str | int | float | bool | None
"""What JSON can hold."""


def shape(model: type[BaseModel]) -> Data:
    """The JSON schema of a model without titles and descriptions: a better docstring is no other shape."""
    return _silent(cast("Data", model.model_json_schema()))


@cache
def schema_digest() -> str:
    """SHA-256, hexadecimal, of what State looks like and means: one that was made under another is not read."""
    schema = json.dumps([FOLD, shape(State)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(schema.encode()).hexdigest()


def _silent(data: Data) -> Data:
    if isinstance(data, list):
        return [_silent(one) for one in data]
    if isinstance(data, dict):
        # A field may be named `title`; then it is a schema, and no text.
        said = {name for name in ("title", "description") if isinstance(data.get(name), str)}
        return {name: _silent(one) for name, one in data.items() if name not in said}
    return data
