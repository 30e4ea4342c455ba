"""How many commands a second does a master take, and how long does one of them wait?

A real nats-server and a real `exo master`; clients that each send a command, wait until they see its event in
`EVENTS`, and send the next. The command is one that is refused, so that deciding costs next to nothing, and all the
rest is there: inbox, decision, `EVENTS`, durable commit, fold. Beside it, in turn, the same number of messages by as
many clients who each wait only until the same server has theirs in a stream on the disk.

usage: python -m bench.master [--rounds N] [--commands N]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from nats.js.api import StorageType, StreamConfig

from bench.contenders import running
from bench.figures import percentiles, ratios, spread
from exo.bus.client import Bus, connect, new_id
from exo.bus.events import bounds, follow
from exo.bus.inbox import send_command
from exo.domain.ids import MessageId, TaskId
from exo.domain.messages.commands import CancelGeneration
from tests.stack import free_port

CLUSTER = "bench"
CLIENTS = (1, 32)
EXO = "from exo.cli.app import main; main()"
STREAM = "BENCH"
COMMAND = CancelGeneration(task_id=TaskId("none"), reason="to be refused")

Send = Callable[[], Awaitable[None]]


@dataclass
class Measured:
    """Messages a second, and the seconds that each took."""

    speed: float
    seconds: list[float]


@dataclass
class Outcomes:
    """The commands whose events were seen, or are waited for."""

    seen: dict[MessageId, asyncio.Event] = field(default_factory=dict[MessageId, asyncio.Event])

    def of(self, message_id: MessageId) -> asyncio.Event:
        """Set once an event has this cause."""
        return self.seen.setdefault(message_id, asyncio.Event())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="How fast a master takes commands.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", type=int, default=2000, help="in a round, of all clients together")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, processes(Path(work)) as url:
        uvloop.run(report(url, options.rounds, options.commands))


@contextmanager
def processes(work: Path) -> Generator[str]:
    """A nats-server and a master; the server's URL."""
    url = f"nats://127.0.0.1:{free_port()}"
    settings = {"EXO_HOME": str(work / "home"), "EXO_NATS_URL": url, "EXO_CLUSTER": CLUSTER}
    with (
        running([sys.executable, "-c", EXO, "nats"], work / "nats.log", settings),
        running([sys.executable, "-c", EXO, "master"], work / "master.log", settings),
    ):
        yield url


async def report(url: str, rounds: int, commands: int) -> None:
    """Commands and publishes in turn, for one client and for many."""
    bus = await connect(url, CLUSTER, "bench")
    try:
        await bus.js.add_stream(StreamConfig(name=STREAM, subjects=[STREAM], storage=StorageType.FILE))
        async with commanding(bus) as command:
            await command()  # the first is answered when the master leads
            for clients in CLIENTS:
                count = commands if clients > 1 else commands // 4
                await measure(command, clients, 100)
                ours, bare = await in_turn(bus, command, rounds, clients, count)
                table(clients, ours, bare)
    finally:
        await bus.close()


async def in_turn(
    bus: Bus, command: Send, rounds: int, clients: int, count: int
) -> tuple[list[Measured], list[Measured]]:
    """Commands, and publishes to a stream on the disk; each goes first in every other round."""
    ours: list[Measured] = []
    bare: list[Measured] = []
    for number in range(rounds):
        for turn in (number, number + 1):
            if turn % 2:
                ours.append(await measure(command, clients, count))
            else:
                bare.append(await measure(lambda: published(bus), clients, count))
    return ours, bare


async def measure(send: Send, clients: int, count: int) -> Measured:
    """So many clients, side by side, each with one message on the way."""
    seconds: list[float] = []

    async def client() -> None:
        for _ in range(count // clients):
            sent = time.perf_counter()
            await send()
            seconds.append(time.perf_counter() - sent)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return Measured(len(seconds) / (time.perf_counter() - began), seconds)


async def published(bus: Bus) -> None:
    """A message as large as a command, in the stream on the disk."""
    await bus.js.publish(STREAM, b"x" * 300, headers={"Nats-Msg-Id": new_id()})


@asynccontextmanager
async def commanding(bus: Bus) -> AsyncGenerator[Send]:
    """What sends a command and returns when its event was seen."""
    outcomes = Outcomes()

    async def command() -> None:
        message_id = await send_command(bus, "bench", COMMAND)
        await outcomes.of(message_id).wait()
        del outcomes.seen[message_id]

    watching = asyncio.create_task(watch(bus, outcomes))
    try:
        yield command
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def watch(bus: Bus, outcomes: Outcomes) -> None:
    """Follow the events and note their causes."""
    _, last = await bounds(bus)
    async with aclosing(follow(bus, last)) as batches:
        async for batch in batches:
            for recorded in batch:
                if recorded.entry.cause_id is not None:
                    outcomes.of(recorded.entry.cause_id).set()


def table(clients: int, ours: list[Measured], bare: list[Measured]) -> None:
    """Print rates, percentiles over all rounds, and the ratios round by round."""
    print(f"\n{clients} client{'s' if clients > 1 else ''}")
    for name, measured in (("commands", ours), ("publishes", bare)):
        latencies = percentiles([second for one in measured for second in one.seconds])
        print(f"  {name:10} {spread([one.speed for one in measured], '.0f')} a second, {latencies}")
    speeds = ([one.speed for one in measured] for measured in (ours, bare))
    print(f"  commands / publishes {spread(ratios(*speeds), '.3f')}")


if __name__ == "__main__":
    main()
