"""Chat requests that run beside a test, so that it can do harm while they stream."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Sequence
from typing import Literal

from tests.stack import Stack, wait_until

Outcome = Literal["complete", "error", "broken"]


def script(count: int, pace: float = 0.0, word: str = "word", **more: object) -> str:
    """The message that makes the scripted engine emit `count` numbered words, one every `pace` seconds."""
    return json.dumps({"tokens": words(count, word), "pace": pace, **more})


def words(count: int, word: str = "word") -> list[str]:
    """What `script` has emitted, token by token."""
    return [f"{word}{number} " for number in range(count)]


class Chat:
    """One request, read in a thread of its own. Everything about it can be looked at while it runs."""

    def __init__(self, stack: Stack, message: str, *, stream: bool = True, model: str = "scripted", **body: object):
        self.began = time.monotonic()
        self.status: int | None = None
        self.pieces: list[str] = []
        self.comments: list[str] = []
        self.error: dict[str, str] | None = None
        self.finish_reason: str | None = None
        self.task_id: str | None = None
        self.broken: str | None = None
        """How the connection ended, where it did before the answer."""
        self.ended_at: float | None = None
        self._done = False
        self._stream = stream
        self._connection = http.client.HTTPConnection("127.0.0.1", stack.api_port, timeout=60)
        self._body = json.dumps(
            {"model": model, "messages": [{"role": "user", "content": message}], "stream": stream, **body}
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self.pieces)

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        if self.error is not None:
            return "error"
        is_whole = self.broken is None and self.status == 200 and self.finish_reason is not None and self._done
        return "complete" if is_whole else "broken"

    @property
    def code(self) -> str | None:
        """The error's, if it ended in one."""
        return self.error["code"] if self.error else None

    def wait(self, timeout: float = 30.0) -> "Chat":
        """Return when it is over; fail where it is not within `timeout` seconds: it hangs."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"a request hangs: {self}"
        return self

    def wait_text(self, count: int = 1, timeout: float = 20.0) -> "Chat":
        """Return when `count` pieces of its answer have come."""
        wait_until(lambda: len(self.pieces) >= count or self.ended_at is not None, f"{count} pieces", timeout)
        assert len(self.pieces) >= count, self
        return self

    def hang_up(self) -> None:
        """Go away without a word."""
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def __repr__(self) -> str:
        return (
            f"<chat {self.task_id}: status {self.status}, {len(self.pieces)} pieces, error {self.error}, "
            f"broken {self.broken}, finish {self.finish_reason}, comments {self.comments}>"
        )

    def _run(self) -> None:
        try:
            self._connection.request("POST", "/v1/chat/completions", self._body, {"content-type": "application/json"})
            response = self._connection.getresponse()
            self.status = response.status
            if response.status == 200 and self._stream:
                for line in response:
                    self._take(line.decode().rstrip("\n"))
            else:
                self._take_whole(json.loads(response.read()))
        except (OSError, http.client.HTTPException) as error:
            self.broken = repr(error)
        finally:
            self.ended_at = time.monotonic()
            self._connection.close()

    def _take(self, line: str) -> None:
        if line.startswith(":"):
            self.comments.append(line[1:].strip())
        elif line == "data: [DONE]":
            self._done = True
        elif line.startswith("data: "):
            self._take_frame(json.loads(line.removeprefix("data: ")))

    def _take_frame(self, frame: dict) -> None:
        if "error" in frame:
            self.error = frame["error"]
            return
        self.task_id = frame["id"].removeprefix("chatcmpl-")
        for choice in frame["choices"]:
            if content := choice["delta"].get("content"):
                self.pieces.append(content)
            self.finish_reason = choice["finish_reason"] or self.finish_reason

    def _take_whole(self, body: dict) -> None:
        self._done = True
        if "error" in body:
            self.error = body["error"]
            return
        self.task_id = body["id"].removeprefix("chatcmpl-")
        self.pieces.append(body["choices"][0]["message"]["content"])
        self.finish_reason = body["choices"][0]["finish_reason"]


def wait_all(chats: Sequence[Chat], timeout: float = 30.0) -> None:
    """Return when all are over; fail, showing those that hang, where they are not within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    for chat in chats:
        chat.wait(max(0.01, deadline - time.monotonic()))
