"""What every message and every part of State has in common: frozen, closed, and plain data."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable record. Unknown fields are refused, so that a misspelt or newer field is seen and never dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")
