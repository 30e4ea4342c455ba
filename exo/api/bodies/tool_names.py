"""What holds for the tools of a request, whichever API it is of. For validators of bodies."""

from collections import Counter
from collections.abc import Sequence

from pydantic_core import PydanticCustomError

TOOLS_MOST = 128
"""OpenAI's limit."""


def check_different(names: Sequence[str]) -> None:
    """Raises PydanticCustomError where two tools have the same name."""
    (name, times), *_ = Counter(names).most_common(1) or [("", 0)]
    if times > 1:
        raise PydanticCustomError("same_name", "two tools have the name '{name}'", {"name": name})


def check_demanded(name: str | None, offered: Sequence[str]) -> None:
    """Raises PydanticCustomError where a call of the tool `name`, of any where it is None, cannot be demanded."""
    if not offered:
        raise PydanticCustomError("no_tools", "a tool is to be called, but there are no 'tools'")
    if name is not None and name not in offered:
        raise PydanticCustomError("no_tool", "'{name}' is not among the 'tools'", {"name": name})
