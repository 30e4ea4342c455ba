"""What every message and every part of State has in common: frozen, closed, and plain data."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable record. Unknown fields are refused, so that a misspelt or newer field is seen and never dropped.

    Infinities and NaN are refused too: JSON has none, and an event that was written as null could not be read again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
