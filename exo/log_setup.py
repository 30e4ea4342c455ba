"""What a process says while it runs: one line a message, to standard error, where honcho puts the name in front."""

import logging
import sys

_QUIET = ("httpx", "httpcore", "uvicorn.access", "alembic", "nats", "aiosqlite", "transformers")
"""Libraries whose routine messages are not for the operator."""


def setup_logging(level: str) -> None:
    """Send all log messages of `level` and above to standard error."""
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
