"""What a process says while it runs: one line a message, to standard error, where honcho puts the name in front."""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]

_QUIET = ("httpx", "httpcore", "uvicorn.access", "alembic", "nats", "aiosqlite", "transformers")
"""Libraries whose routine messages are not for the operator."""

current_request: ContextVar[str] = ContextVar("current_request", default="")
"""The id of the HTTP request that the current asyncio task works on."""
current_task: ContextVar[str] = ContextVar("current_task", default="")
"""The id of the generation that the current asyncio task works on."""


def setup_logging(level: str, log_format: LogFormat = "text") -> None:
    """Send all log messages of `level` and above to standard error, with the ids of what they are about."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _ids() -> dict[str, str]:
    """What the current message is about."""
    ids = {"request_id": current_request.get(), "task_id": current_task.get()}
    return {name: value for name, value in ids.items() if value}


class TextLines(logging.Formatter):
    """`15:04:05 I exo.api.http.front: GET /health: 200 [request_id=…]`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname).1s %(name)s: %(message)s", datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name is logging's)
        """The line, without a traceback."""
        ids = " ".join(f"{name}={value}" for name, value in _ids().items())
        return super().formatMessage(record) + (f" [{ids}]" if ids else "")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the ids, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_ids(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)
