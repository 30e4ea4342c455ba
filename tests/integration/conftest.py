"""What one part of exo meets in a test: a real NATS server, a node's API, a real model's vocabulary."""

import asyncio
import gc
import os
import shutil
import signal
import socket
import subprocess
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from api_keys import Secured, secured_node
from hub_server import Hub, hub_server

from exo.bus.client import Bus, connect
from exo.bus.server import find_binary, render_config
from exo.domain.ids import NodeId
from tests.stack import Stack, free_port, wait_until

if TYPE_CHECKING:
    from exo.runner.structured.vocabulary import Vocabulary

# litellm asks GitHub for prices when it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

CLUSTER = "test"
Settled = Callable[[Bus], Awaitable[None]]
Until = Callable[[Callable[[], bool], str], Awaitable[None]]


class NatsServer:
    """The server as `exo nats` runs it: on a free port, with a store of its own. It can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._config = render_config(home, self.url, NodeId("node-a"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, jetstream: bool = True) -> None:
        """Start it on the same port and store, and wait until it listens."""
        arguments = ["--config", str(self._config)] if jetstream else ["-a", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(
            [find_binary(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._listens, f"nats-server at {self.port}", 10)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as one stops a server."""
        self._end(signal.SIGTERM)

    def forget(self) -> None:
        """Lose all that it stored."""
        shutil.rmtree(self.home / "nats" / "jetstream")

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=10)
            self._process = None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A running server."""
    server = NatsServer(tmp_path / "nats-home")
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """A connection to it, with all streams there."""
    bus = await connect(nats_server.url, CLUSTER, "tester")
    yield bus
    await bus.close()


@pytest.fixture
async def other_bus(nats_server: NatsServer, bus: Bus) -> AsyncIterator[Bus]:
    """A second connection, of another process of the same cluster."""
    other = await connect(nats_server.url, CLUSTER, "another")
    yield other
    await other.close()


@pytest.fixture
def settled() -> Settled:
    """Waits until the server has taken what a connection sent so far: the client's own `flush` overtakes it."""

    async def wait(bus: Bus) -> None:
        await bus.js.account_info()

    return wait


@pytest.fixture
def until() -> Until:
    """Waits for a condition, and fails, saying what it waited for, after 15 seconds."""

    async def wait(condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(15):
                while not condition():  # noqa: ASYNC110  any condition, not one event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"waited 15 s for {what}") from None

    return wait


@pytest.fixture
def client(shared_stack: Stack) -> Iterator[httpx.Client]:
    """Asks the module's node."""
    with httpx.Client(base_url=shared_stack.url, timeout=30) as one:
        yield one


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A node with keys, one for all tests of a module that do it no harm."""
    with secured_node(tmp_path_factory.mktemp("node") / "home") as one:
        yield one


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub of the test's own, with one model."""
    with hub_server() as one:
        yield one


@pytest.fixture
def hub_node(tmp_path: Path, hub: Hub) -> Iterator[Stack]:
    """A node with an empty disk, and MLX, of which nothing is loaded, that asks this hub."""
    node = Stack(tmp_path / "home", engine="mlx", default_model="none")
    node.environment["HF_ENDPOINT"] = hub.url
    try:
        node.start()
        node.wait_worker()
        yield node
    finally:
        node.stop()


@pytest.fixture(scope="module")
def connections_let_go() -> Iterator[None]:
    """For modules whose client packages leave connections to the collector."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def litellm_cleared(connections_let_go: None) -> Iterator[None]:
    """For modules that use litellm, which has a cache of clients. Imported here, since it takes seconds."""
    yield
    import litellm

    litellm.in_memory_llm_clients_cache.flush_cache()


@pytest.fixture(scope="session")
def vocabulary(embedded_model: Path) -> "Vocabulary":
    """The embedded model's, for constraints. Imported here, since transformers take a second."""
    from exo.runner.structured.vocabulary import Vocabulary
    from exo.runner.tokenizer import HuggingFaceTokenizer

    ends = HuggingFaceTokenizer(embedded_model).end_tokens
    return Vocabulary((embedded_model / "tokenizer.json").read_text(), ends)
