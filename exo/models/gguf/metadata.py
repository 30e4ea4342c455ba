"""The keys of a GGUF file, each asked for by the type that it must have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import cast

from exo.errors import Rejected

Value = str | int | float | bool | Sequence[str] | Sequence[int | float | bool]

LARGEST_WHOLE = 1 << 31


@dataclass(frozen=True, slots=True)
class Metadata:
    """Keys and values of the file at `path`. Every accessor raises Rejected, naming the key, for an unfit value."""

    path: Path
    values: Mapping[str, Value]

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def _refuse(self, key: str, wanted: str) -> Rejected:
        found = self.values.get(key)
        shown = "is missing" if found is None else f"is {str(found)[:60]!r}"
        return Rejected(
            f"{self.path}: the key {key!r} {shown}, where {wanted} is needed: take another file of this model"
        )

    def whole(self, key: str, default: int | None = None, *, least: int = 1, most: int = LARGEST_WHOLE) -> int:
        """A whole number from `least` to `most`."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._refuse(key, f"a whole number from {least:,} to {most:,}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value > 0):
            raise self._refuse(key, "a number above zero")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Yes or no."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._refuse(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self._refuse(key, "a text")
        return value

    def texts(self, key: str) -> Sequence[str]:
        """A list of texts."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in cast(list[object], value)):
            raise self._refuse(key, "a list of texts")
        return cast(list[str], value)

    def numbers(self, key: str, count: int) -> Sequence[int | float]:
        """A list of exactly `count` numbers."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) != count or isinstance(value[0], str):
            raise self._refuse(key, f"a list of {count:,} numbers")
        return cast(list[int | float], value)
