"""What errors call a parameter: runners know those of chat completions, and other endpoints have names of their own."""

from collections.abc import Mapping

from exo.api.http.codes import PARAMS
from exo.domain.messages.chunks import EndPiece
from exo.errors import Rejected

Names = Mapping[str, str]
"""An endpoint's names, by those that chat completions have. One that begins with a dot is the end of a path."""
AS_IN_CHAT: Names = {}


def named(end: EndPiece, names: Names) -> EndPiece:
    """An end whose error, if there is one, names its parameter as the endpoint does, also at the text's beginning."""
    own = _renamed(end.param or PARAMS.get(end.code), end.error, names)
    return end if own is None else end.replaced({"param": own[0], "error": own[1]})


def named_refusal(refusal: Rejected, names: Names) -> Rejected:
    """A runner's refusal that names its parameter as the endpoint does."""
    own = _renamed(refusal.param or PARAMS.get(refusal.code), refusal.reason, names)
    return refusal if own is None else Rejected(own[1], code=refusal.code, param=own[0])


def _renamed(param: str | None, text: str, names: Names) -> tuple[str, str] | None:
    """The endpoint's name, and the text with it; None where the endpoint calls it the same."""
    own = None if param is None else _own(param, names)
    if param is None or own is None:
        return None
    return own, own + text.removeprefix(param) if text.startswith(f"{param}:") else text


def _own(param: str, names: Names) -> str | None:
    for name, own in names.items():
        if param == name:
            return own
        if name.startswith(".") and param.endswith(name):
            return param.removesuffix(name) + own
    return None
