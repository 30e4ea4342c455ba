"""What request bodies are made of, whichever API they are of: nothing is converted, and nothing that would be ignored
is accepted."""

from typing import Annotated, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, StringConstraints, ValidationInfo
from pydantic_core import PydanticCustomError


class Strict(BaseModel):
    """Part of a request."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _supported(value: object) -> object:
    """A value that asks for nothing is as good as none; any other is refused."""
    if value in (None, False, 0, "", "none", "auto", "default") or value in ([], {}):
        return None
    raise PydanticCustomError("not_supported", "this is not supported yet")


Unsupported = Annotated[None, BeforeValidator(_supported)]
"""A parameter that may be there as long as it asks for nothing."""
ModelName = Annotated[str, StringConstraints(min_length=1)]
"""Full or short."""
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
"""Of a tool or a schema. OpenAI's rule; no model's way of writing calls tears such a name apart."""
LIST_MOST = 20_000
"""Messages, items or parts in one list. Each costs some 20 microseconds, in which nobody else is answered. In an
annotation a limit stands right behind its list: behind a validator it would be looked at after all members."""
StopSequence = Annotated[str, StringConstraints(min_length=1)]


class AsksModel(Strict):
    """The body of a request to a model."""

    model: ModelName


def by_field(name: str, *values: str) -> Discriminator:
    """Chooses the member of a union, each with a `Tag("<value>")`, by a field. The brackets are what a tag is known by
    in the place of an error, where it is no part of the path that a client knows."""

    def tag(value: object) -> str | None:
        found = field_of(value, name)
        return f"<{found}>" if isinstance(found, str) else None

    message = f"'{name}' must be one of {', '.join(values)}"
    return Discriminator(tag, custom_error_type="unknown_member", custom_error_message=message)


def check_streaming(info: ValidationInfo) -> None:
    """Whether a stream is asked for, where a parameter is for streams only: for its validator."""
    if info.data.get("stream") is not True:
        raise PydanticCustomError("not_streaming", "this is for streams only, and 'stream' is not true")


def field_of(value: object, name: str) -> object:
    """A field of what a client sent, or of the model that was made of it; None where there is none."""
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else getattr(value, name, None)
