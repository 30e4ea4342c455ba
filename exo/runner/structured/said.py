"""What llguidance says about a grammar, as a client may read it. Pure."""

import re

REASON_MOST = 300
"""Characters of what is said about a grammar, which may quote the whole of it."""

_DRAWING = re.compile(r"\n\s*\d+ \| ")
"""Where an error begins to show the lines of the grammar."""
_STATE = "<state>"
"""Where it begins to tell of the parser's inside."""


def short(reason: str) -> str:
    """What is wrong, on one line."""
    line = " ".join(_DRAWING.split(reason)[0].partition(_STATE)[0].split())
    if "Failed to generate regex for" in line:
        return "a range of numbers cannot be held: 'minimum' or 'maximum' is too far away, or they contradict"
    if " " not in line:  # the name of a state, and no sentence
        return "no text that meets it can go on from here"
    return line if len(line) <= REASON_MOST else line[: REASON_MOST - 1] + "…"
