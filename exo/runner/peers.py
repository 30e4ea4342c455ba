"""The other ranks of an instance: how this one meets them, and how it notices that one is gone."""

import asyncio
import time
from collections.abc import Callable, Sequence

from exo.bus.beats import subscribe_beats
from exo.bus.client import Bus
from exo.bus.tasks import follow_tasks
from exo.domain.messages.beat import RunnerBeat
from exo.domain.messages.tasks import ConnectTask
from exo.domain.runner_spec import RunnerSpec
from exo.domain.shard import Shard
from exo.errors import Fatal, Retryable
from exo.runner.engine_thread import EngineThread
from exo.runner.engines.ranks import Peers

SILENT_LOADING = 15.0
"""Seconds without a sign of life after which a peer is taken for lost, while it loads: imports hold up its beats."""
SILENT = 4.0
"""The same while it generates. A computation that waits for a lost rank cannot be ended but with the process."""
LOOK_PAUSE = 0.25
MEETING = 30.0
"""Seconds that the ranks have to connect to each other once each was told where the others are. MLX tries for 15."""


class PeerLost(Retryable):
    """Other ranks are gone, or one of them is."""

    def __init__(self, reason: str, lost: Sequence[Shard]) -> None:
        super().__init__(", ".join(f"rank {shard.rank} on node {shard.node_id}" for shard in lost) + f": {reason}")
        self.reason = reason
        self.lost = tuple(shard.rank for shard in lost)


class PeerSilent(PeerLost):
    """They show no sign of life: whoever could say why would have said it."""


class PeerWatch:
    """Notices peers that are silent: stopped, hung, or on a machine that is gone. (Of a killed process the others'
    connections mostly tell at once: MLX may miss that one was closed, and wait on.)"""

    def __init__(
        self, bus: Bus, spec: RunnerSpec, processes: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`processes`: of each rank."""
        self._bus = bus
        self._clock = clock
        self._connections = bus.connections
        shards = spec.instance.shards
        self._peers = {
            shard.runner_id: (shard, process)
            for shard, process in zip(shards, processes, strict=True)
            if shard.rank != spec.shard.rank
        }
        self._seen_at = dict.fromkeys(self._peers, clock())
        self.patience = SILENT_LOADING
        """Seconds of silence that are allowed now."""

    async def listen(self) -> None:
        """Begin to take the peers' signs of life."""
        for node_id in {shard.node_id for shard, _ in self._peers.values()}:
            await subscribe_beats(self._bus, node_id, self._receive)

    async def run(self) -> None:
        """Watch without end. Raises PeerSilent when a peer is."""
        while True:
            await asyncio.sleep(LOOK_PAUSE)
            self._check(self._clock())

    def silent(self, seconds: float) -> list[Shard]:
        """Which peers have shown no sign of life for so long."""
        now = self._clock()
        return [
            shard for runner_id, (shard, _) in sorted(self._peers.items()) if now - self._seen_at[runner_id] > seconds
        ]

    def _receive(self, beat: RunnerBeat) -> None:
        peer = self._peers.get(beat.runner_id)
        if peer is not None and peer[1] == beat.process:
            self._seen_at[beat.runner_id] = self._clock()

    def _check(self, now: float) -> None:
        """Nobody is silent while NATS is away from here, nor before a full patience has passed since it came back."""
        if not self._bus.is_connected or self._bus.connections != self._connections:
            self._connections = self._bus.connections
            self._seen_at = dict.fromkeys(self._peers, now)
        elif silent := self.silent(self.patience):
            raise PeerSilent(f"no sign of life for {self.patience:.0f} s", silent)


async def told_peers(bus: Bus, spec: RunnerSpec, after: int) -> ConnectTask:
    """Which processes make a group with this one, as the task after stream sequence `after` says. It waits without end:
    the master gives a group that does not come together up."""
    async for task in follow_tasks(bus, spec.instance.instance_id, after):
        if isinstance(task, ConnectTask) and spec.process in task.processes:
            return task
    raise Fatal("the stream of tasks ended")


def peers(spec: RunnerSpec, connect: ConnectTask) -> Peers:
    """How this rank reaches the others."""
    instance = spec.instance
    rank = spec.shard.rank
    _, _, port = connect.addresses[0].rpartition(":")
    coordinator = f"{instance.coordinators[rank]}:{port}" if instance.coordinators else connect.addresses[0]
    return Peers(rank, connect.addresses, instance.backend, instance.rdma_devices, coordinator)


async def meet(thread: EngineThread, others: Peers, watch: PeerWatch, patience: float = MEETING) -> None:
    """Join the other ranks. Raises Retryable where they do not come together; the engine's thread is lost then."""
    try:
        async with asyncio.timeout(patience):
            await thread.call(lambda engine: engine.join(others))
    except TimeoutError as error:
        apart = f"the ranks did not meet over {others.backend} within {patience:.0f} s"
        if silent := watch.silent(SILENT):
            raise PeerSilent(f"no sign of life, {apart}", silent) from error
        raise Retryable(f"{apart}: all live, at {', '.join(others.addresses)}") from error


def lost_connection(spec: RunnerSpec, error: Exception) -> PeerLost:
    """What is said where a connection ended, which does not tell of which peer it was."""
    others = [shard for shard in spec.instance.shards if shard.rank != spec.shard.rank]
    to = "to it" if len(others) == 1 else "to one of them"
    return PeerLost(f"the connection {to} was lost ({error})", others)
