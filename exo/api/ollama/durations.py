"""How long a model is to stay loaded: seconds, or a duration as Go writes it, `1h30m`."""

import math
import re
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from exo.domain.limits import IDLE_MOST

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?({_PART.pattern})+")

FOREVER = -1.0
"""Stands for every time that is below zero: until the room is needed."""


def parse_duration(value: object) -> float | None:
    """Seconds; FOREVER where they are below zero, or more than anybody will wait. Raises PydanticCustomError."""
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None:
        reason = "this must be a number of seconds, or a text such as '5m', '1h30m' or '-1s'"
        raise PydanticCustomError("duration", reason)
    return seconds if 0 <= seconds <= IDLE_MOST else FOREVER


Duration = Annotated[float | None, BeforeValidator(parse_duration, json_schema_input_type=float | str | None)]
"""In seconds; FOREVER; None where nothing is said."""


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None if math.isnan(value) else float(value)
    if not isinstance(value, str):
        return None
    if value in ("0", "+0", "-0"):
        return 0.0
    if not _WHOLE.fullmatch(value):
        return None
    size = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    return -size if value.startswith("-") else size
