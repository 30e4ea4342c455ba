"""What a model's data looks like, apart from what is said about it."""

from typing import cast

from pydantic import BaseModel

Data = dict[str, "Data"] | list["Data"] | str | int | float | bool | None
"""What JSON can hold."""


def shape(model: type[BaseModel]) -> Data:
    """The JSON schema of a model without titles and descriptions: a better docstring is no other shape."""
    return _silent(cast("Data", model.model_json_schema()))


def _silent(data: Data) -> Data:
    if isinstance(data, list):
        return [_silent(one) for one in data]
    if isinstance(data, dict):
        # A field may be named `title`; then it is a schema, and no text.
        said = {name for name in ("title", "description") if isinstance(data.get(name), str)}
        return {name: _silent(one) for name, one in data.items() if name not in said}
    return data
