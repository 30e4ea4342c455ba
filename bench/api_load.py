"""A client that asks for many streams at once, and reads them as cheaply as Python can. A process of its own.

One order as JSON on standard input, what was measured as JSON on standard output. All streams are told to begin at one
moment, when all have been asked for, those with a pace spread over it, so that tokens come one by one: what counts is
the time from the first token to the last.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import psutil
import uvloop

TOKEN = "tok "
MARK = TOKEN.encode()
"""What stands in a stream once for each token, and nowhere else."""
DONE = b"data: [DONE]"
LEAD = 1.0
"""Seconds before the common begin."""


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    port: int
    model: str
    streams: int
    tokens: int
    """Of each stream."""
    pace: float
    """Seconds from one token of a stream to the next; 0: as fast as they come."""
    lead: float
    """Seconds from asking for one stream to asking for the next."""
    pids: dict[str, int]
    """Processes whose CPU time is looked at, by name."""


@dataclass
class Load:
    """What came of it."""

    tokens: int = 0
    reads: int = 0
    """In how many pieces they came."""
    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict[str, float])
    """CPU seconds of each process."""
    p50: float = 0.0
    """Seconds between two tokens of a stream."""
    p99: float = 0.0
    broken: int = 0
    """Streams that did not have all their tokens, or no end."""

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


class Watch:
    """What came, and what the processes needed for it, from the common begin on."""

    def __init__(self, order: Order) -> None:
        own = {"client": psutil.Process()}
        self._processes = own | {name: psutil.Process(pid) for name, pid in order.pids.items()}
        self._cpu_before = self._cpu()
        self._first = self._last = 0.0
        self.gaps: list[float] = []
        self.load = Load()

    def begin(self) -> None:
        """All have been asked for; from now on CPU time counts."""
        self._cpu_before = self._cpu()

    def came(self, tokens: int, now: float, before: float) -> None:
        """Tokens of a stream came together; those before them came at `before`, or never did."""
        self._first = self._first or now
        self._last = now
        self.load.tokens += tokens
        self.load.reads += 1
        if before:
            self.gaps.append(now - before)
        self.gaps += [0.0] * (tokens - 1)

    def finish(self) -> Load:
        """All streams are over."""
        after = self._cpu()
        self.load.cpu = {name: after[name] - before for name, before in self._cpu_before.items()}
        self.load.seconds = self._last - self._first
        gaps = sorted(self.gaps) or [0.0]
        self.load.p50, self.load.p99 = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.99)]
        return self.load

    def _cpu(self) -> dict[str, float]:
        times = {name: process.cpu_times() for name, process in self._processes.items()}
        return {name: one.user + one.system for name, one in times.items()}


class Stream(asyncio.Protocol):
    """One connection with one request. Counts marks, wherever the bytes are cut."""

    def __init__(self, request: bytes, watch: Watch) -> None:
        self._request = request
        self._watch = watch
        self._tail = b""
        self._last = 0.0
        self._is_begun = False
        self.tokens = 0
        self.is_whole = False
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Some more of the answer. Anything but a stream ends it."""
        if not self._is_begun:
            self._is_begun = data.startswith(b"HTTP/1.1 200")
            if not self._is_begun:
                print(data.decode(errors="replace"), file=sys.stderr)
                self._end()
                return
        read = self._tail + data
        count = read.count(MARK)
        self._tail = read[1 - len(DONE) :]
        if count:
            self._tail = self._tail.replace(MARK, b"")
            self._take(count)
        if DONE in read:
            self.is_whole = True
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, too early perhaps."""
        self._end()

    def _take(self, count: int) -> None:
        now = time.perf_counter()
        self._watch.came(count, now, self._last)
        self.tokens += count
        self._last = now

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


def request_for(order: Order, lead: float) -> bytes:
    """The whole request, which is the same for all streams."""
    script = {"tokens": [TOKEN] * order.tokens, "pace": order.pace, "prefill": lead}
    messages = [{"role": "user", "content": json.dumps(script, separators=(",", ":"))}]
    body = json.dumps({"model": order.model, "messages": messages, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + body


async def load(order: Order) -> Load:
    """Ask for all streams and read them to their ends."""
    watch, loop = Watch(order), asyncio.get_running_loop()
    begin = time.monotonic() + LEAD + 1.5 * order.lead * order.streams
    loop.call_later(begin - time.monotonic() - LEAD / 10, watch.begin)
    streams: list[Stream] = []
    for number in range(order.streams):
        due = begin + order.pace * number / order.streams
        stream = Stream(request_for(order, max(0.0, due - time.monotonic())), watch)
        await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", order.port)
        await asyncio.sleep(order.lead)
        streams.append(stream)
    await asyncio.gather(*(stream.over for stream in streams))
    result = watch.finish()
    result.broken = sum(not stream.is_whole or stream.tokens != order.tokens for stream in streams)
    return result


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(load(Order(**json.loads(sys.stdin.readline())))))))
