"""The worker's process: reports its machine, and brings the node to what State wants of it."""

import asyncio
import contextlib
import logging
import time

from exo.bus.beats import subscribe_beats
from exo.bus.client import Bus, connect, new_id
from exo.bus.gauges import publish_gauges
from exo.bus.inbox import send_report
from exo.bus.replica import Replica, following
from exo.config import Settings
from exo.domain.ids import NodeId
from exo.domain.limits import AVAILABLE_CHANGE
from exo.domain.machine_names import SHORT_ID
from exo.domain.messages.events import NodeJoined, Recorded
from exo.domain.messages.reports import LinksSeen, NodeLeft, NodeSeen
from exo.domain.plan import AbandonModel, Action, DeleteModel, Local, PrepareModel, StartRunner, StopRunner, plan
from exo.domain.state import State, names_of
from exo.errors import Fatal, Rejected, Retryable
from exo.models.lock import only_one
from exo.node.facts import node_facts
from exo.node.gauges import node_gauges
from exo.node.identity import FILE, node_id
from exo.node.probe import Identity, identified
from exo.node.ray import RayHead
from exo.worker.links import Links
from exo.worker.models import Models
from exo.worker.supervisor import Supervisor

logger = logging.getLogger(__name__)

GAUGES_PAUSE = 2.0
"""Seconds between two publications of live figures; a node is lost after five that did not come."""
LINKS_PAUSE = 5.0
"""Seconds between two measurements of the links, when no node joins."""
LOOK_PAUSE = 5.0
"""Seconds between two looks at the machine for changes that matter."""
PLAN_PAUSE = 1.0
"""Seconds between two plans when nothing happens: a pause before a restart may be over."""
GOODBYE_PATIENCE = 0.5
"""Seconds to say goodbye in: NATS may be stopping too."""


async def run_worker(settings: Settings) -> None:
    """Run until cancelled. Raises Fatal where it cannot go on."""
    with only_one(settings.home, "worker"):
        bus = await connect(settings.nats_url, settings.cluster, "worker")
        try:
            async with following(bus) as replica:
                await _work(settings, bus, replica)
        finally:
            await bus.close()


async def _work(settings: Settings, bus: Bus, replica: Replica) -> None:
    worker = Worker(settings, bus, replica)
    try:
        await worker.run()
    finally:
        await worker.close()


class Worker:
    """One node's part in the cluster."""

    def __init__(self, settings: Settings, bus: Bus, replica: Replica) -> None:
        self._settings = settings
        self._bus = bus
        self._replica = replica
        self._node_id = node_id(settings.home)
        self._boot_id = new_id()
        self._wake = asyncio.Event()
        self._models = Models(settings, bus, replica, self._node_id, self._wake.set)
        self._supervisor = Supervisor(settings, bus, replica, self._wake.set)
        self._links = Links(settings.cluster, self._node_id)
        self._joining = asyncio.Event()
        self._probe_port = 0
        self._ray = None if settings.ray is None else RayHead(settings.ray)
        self._reported: NodeSeen | None = None
        self._joined = False

    async def run(self) -> None:
        """Report and act without end."""
        await subscribe_beats(self._bus, self._node_id, self._supervisor.beat)
        self._replica.listen(self._listen)
        identity = Identity(self._settings.cluster, self._node_id, self._boot_id)
        async with identified(identity) as self._probe_port, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._report_links())
            tasks.create_task(self._show_gauges())
            tasks.create_task(self._report_machine())
            tasks.create_task(self._follow_plan())

    async def close(self) -> None:
        """End the runners, and say goodbye where anybody still listens."""
        await self._models.close()
        await self._supervisor.close()
        try:
            goodbye = NodeLeft(node_id=self._node_id, boot_id=self._boot_id)
            async with asyncio.timeout(GOODBYE_PATIENCE):
                await send_report(self._bus, self._node_id, goodbye, GOODBYE_PATIENCE)
        except (Retryable, TimeoutError):
            logger.info("NATS is gone already: the others will notice by themselves")

    def _listen(self, state: State, recorded: Recorded | None) -> None:
        self._wake.set()
        event = None if recorded is None else recorded.entry.event
        if event is None or isinstance(event, NodeJoined):
            self._joining.set()
        if isinstance(event, NodeJoined) and event.boot_id == self._boot_id:
            logger.info("%s", joined(state, self._node_id, self._settings.cluster))

    async def _show_gauges(self) -> None:
        while True:
            gauges = await asyncio.to_thread(node_gauges, self._node_id, self._settings.home)
            await publish_gauges(self._bus, gauges)
            await asyncio.sleep(GAUGES_PAUSE)

    async def _report_machine(self) -> None:
        while True:
            await self._models.look()
            seen = await asyncio.to_thread(self._machine)
            if self._is_news(seen):
                self._reported = seen if await self._send(seen) else self._reported
            await self._models.moved(LOOK_PAUSE)

    async def _report_links(self) -> None:
        """Measure without end, and report when State has others."""
        while True:
            self._joining.clear()
            links = await self._links.measure(self._replica.state)
            node = self._replica.state.nodes.get(self._node_id)
            if self._replica.is_live and node is not None and node.boot_id == self._boot_id and node.links != links:
                await self._send(LinksSeen(node_id=self._node_id, boot_id=self._boot_id, links=links))
            await _wait(self._joining, LINKS_PAUSE)

    def _machine(self) -> NodeSeen:
        gauges = node_gauges(self._node_id, self._settings.home)
        return NodeSeen(
            node_id=self._node_id,
            boot_id=self._boot_id,
            facts=node_facts(self._settings.home, self._settings.engine, self._probe_port, self._ray),
            available_bytes=gauges.memory_available_bytes,
            holdings=self._models.holdings,
            damaged=self._models.damaged,
        )

    def _is_news(self, seen: NodeSeen) -> bool:
        last = self._reported
        known = self._replica.state.nodes.get(self._node_id)
        if last is None or (self._replica.is_live and (known is None or known.boot_id != self._boot_id)):
            return True
        moved = abs(seen.available_bytes - last.available_bytes) > AVAILABLE_CHANGE * seen.facts.memory_bytes
        models_moved = (seen.holdings, seen.damaged) != (last.holdings, last.damaged)
        return moved or seen.facts != last.facts or models_moved

    async def _send(self, report: NodeSeen | LinksSeen) -> bool:
        try:
            await send_report(self._bus, self._node_id, report)
        except Retryable as error:
            logger.warning("this machine could not be reported: %s", error)
            return False
        return True

    async def _follow_plan(self) -> None:
        while True:
            self._wake.clear()
            self._supervisor.check()
            self._refuse_a_double()
            if self._replica.is_live and self._is_member():
                models = self._models
                local = Local(self._supervisor.processes, models.preparing, models.ready, models.deleting)
                for action in plan(self._node_id, self._replica.state, local, time.time()):
                    await self._perform(action)
            await _wait(self._wake, PLAN_PAUSE)

    def _is_member(self) -> bool:
        """Whether State has heard of this start of the worker: before, it tells of an earlier one's runners."""
        node = self._replica.state.nodes.get(self._node_id)
        return node is None or node.boot_id == self._boot_id

    def _refuse_a_double(self) -> None:
        """Two workers with one node's id would take the node from each other without end."""
        node = self._replica.state.nodes.get(self._node_id)
        if node is None or not self._replica.is_live:
            return
        if node.boot_id == self._boot_id:
            self._joined = True
        elif self._joined:
            raise Fatal(
                f"another worker joined with this node's id, on {node.facts.hostname}: two homes are copies of one. "
                f"Delete the file {self._settings.home / FILE} of one of them, and start it again"
            )

    async def _perform(self, action: Action) -> None:
        match action:
            case StartRunner():
                await self._start(action)
            case StopRunner(runner_id, reason):
                self._supervisor.stop(runner_id, reason)
            case PrepareModel(card):
                self._models.prepare(card)
            case AbandonModel(model_id):
                self._models.abandon(model_id)
            case DeleteModel(model_id):
                self._models.delete(model_id)

    async def _start(self, action: StartRunner) -> None:
        try:
            folder = await self._models.folder(action.instance.model_id)
        except Rejected as error:
            logger.warning("%s", error)
            await self._models.look()
            return
        self._supervisor.start(action, str(folder))


def joined(state: State, own_id: NodeId, cluster: str) -> str:
    """What a node says once it is a member: what it is called, and who else is there."""
    names = names_of(state.nodes.values())
    others = [name for node_id, name in sorted(names.items()) if node_id != own_id]
    beside = f"beside {', '.join(others)}" if others else "as its first node"
    return f"joined the cluster '{cluster}' {beside}; this node is {names[own_id]}, {own_id[:SHORT_ID]}"


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until it is set, or so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
