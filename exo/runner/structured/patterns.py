"""Regular expressions as people mean them. Pure."""

import re

_ASCII = {"d": "[0-9]", "D": "[^0-9]", "w": "[0-9A-Za-z_]", "W": "[^0-9A-Za-z_]"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def ascii_classes(pattern: str) -> str:
    r"""The pattern with `\d` and `\w` in ASCII, as in ECMA-262 and as llguidance has them in a schema's `pattern`; in a
    regular expression of its own, `\d` is a digit of any script there. (`(?-u:\d)` would do, but not `(?-u:\D)`.)"""
    return _ESCAPE.sub(lambda escape: _ASCII.get(escape[1], escape[0]), pattern)
