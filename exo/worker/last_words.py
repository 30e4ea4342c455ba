"""What a child process says on its standard error: passed on, and its end kept. What aborts a process below Python, as
a failed command of the GPU does, says why there and nowhere else."""

import asyncio
import contextlib
import re
import sys

TAIL = 4096
"""Bytes that are kept until the process ends."""
LONGEST = 300
"""Characters of the line that is told."""
_LOGGED = re.compile(r"\d\d:\d\d:\d\d [A-Z] |\{")
"""What a line of this program's log begins with, in either form: those are of the process' work, not of its end."""


async def last_words(said: asyncio.StreamReader) -> str:
    """Pass all that a process says on to this one's standard error, until it has ended.

    Gives the last line that is not of the log.
    """
    tail = b""
    while part := await said.read(TAIL):
        tail = (tail + part)[-TAIL:]
        with contextlib.suppress(OSError):  # a terminal that is gone
            sys.stderr.buffer.write(part)
            sys.stderr.flush()
    lines = (line.strip() for line in reversed(tail.decode(errors="replace").split("\n")))
    words = next((line[:LONGEST] for line in lines if line and not _LOGGED.match(line)), "")
    return "".join(character for character in words if character.isprintable())  # it is shown in terminals
