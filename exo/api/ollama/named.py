"""Bodies that name a model."""

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import Strict


class Named(Strict):
    """`name` is what `model` was called before; one of them."""

    model: str | None = None
    name: str | None = Field(default=None, validate_default=True)

    @field_validator("name")
    @classmethod
    def _one_of_both(cls, value: str | None, info: ValidationInfo) -> str | None:
        model = info.data.get("model")
        if not model and not value:
            raise PydanticCustomError("no_model", "'model' is missing")
        if model and value and model != value:
            raise PydanticCustomError("two_models", "'model' is given too, and it is another one")
        return value

    @property
    def wanted(self) -> str:
        """The model's name."""
        return self.model or self.name or ""
