"""What a log line looks like, and what it is about."""

import contextvars
import json
import logging
import re
import sys

from exo.log_setup import JsonLines, TextLines, current_request, current_task


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    try:
        if failed:
            raise ValueError("broken")
        info = None
    except ValueError:
        info = sys.exc_info()
    return logging.LogRecord("exo.test", logging.INFO, "file.py", 1, message, arguments, info)


def within(line: logging.Formatter, one: logging.LogRecord, request_id: str = "", task_id: str = "") -> str:
    """The line as it is in an asyncio task that works on these."""

    def formatted() -> str:
        current_request.set(request_id)
        current_task.set(task_id)
        return line.format(one)

    return contextvars.copy_context().run(formatted)


def test_a_text_line_ends_with_the_ids_that_there_are() -> None:
    line = within(TextLines(), record("%s came", "it"), "r1", "t1")
    assert re.fullmatch(r"\d\d:\d\d:\d\d I exo\.test: it came \[request_id=r1 task_id=t1\]", line)
    assert within(TextLines(), record("alone")).endswith("exo.test: alone")


def test_a_json_line_is_one_object_with_the_ids_that_there_are() -> None:
    line = within(JsonLines(), record("two\nlines"), "r1")
    assert "\n" not in line
    told = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", told.pop("time"))
    assert told == {"level": "INFO", "logger": "exo.test", "message": "two\nlines", "request_id": "r1"}


def test_a_traceback_is_in_the_line() -> None:
    assert "ValueError: broken" in json.loads(within(JsonLines(), record("failed", failed=True)))["exception"]
    assert "ValueError: broken" in within(TextLines(), record("failed", failed=True))
