"""What errors call a parameter: runners know those of chat completions, and other endpoints have names of their own."""

from collections.abc import Mapping

from exo.api.errors import PARAMS
from exo.domain.messages.chunks import EndPiece

Names = Mapping[str, str]
"""An endpoint's names, by those that chat completions have. One that begins with a dot is the end of a path."""
AS_IN_CHAT: Names = {}


def named(end: EndPiece, names: Names) -> EndPiece:
    """An end whose error, if there is one, names its parameter as the endpoint does, also at the text's beginning."""
    param = end.param or PARAMS.get(end.code)
    own = None if param is None else _own(param, names)
    if param is None or own is None:
        return end
    text = own + end.error.removeprefix(param) if end.error.startswith(f"{param}:") else end.error
    return end.replaced({"param": own, "error": text})


def _own(param: str, names: Names) -> str | None:
    for name, own in names.items():
        if param == name:
            return own
        if name.startswith(".") and param.endswith(name):
            return param.removesuffix(name) + own
    return None
