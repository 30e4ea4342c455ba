"""What every message and every part of State has in common: frozen, closed, and plain data."""

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict

_set_fields = BaseModel.__dict__["__dict__"].__set__
_set_names = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


class Frozen(BaseModel):
    """An immutable record. Unknown fields are refused, so that a misspelt or newer field is seen and never dropped.

    Infinities and NaN are refused too: JSON has none, and an event that was written as null could not be read again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def replaced(self, changes: Mapping[str, object]) -> Self:
        """A copy with other values in some fields; the values are not checked.

        Equal to what `model_copy(update=changes)` gives, in half the time: a fold is one or two of these. Which fields
        were given and which are defaults is not kept apart; nothing here asks for it.
        """
        # What `BaseModel.model_copy` does, for a model without extra and private attributes.
        copy = object.__new__(type(self))
        _set_fields(copy, {**self.__dict__, **changes})
        _set_names(copy, self.__pydantic_fields_set__)
        _set_extra(copy, None)
        _set_private(copy, None)
        return copy
