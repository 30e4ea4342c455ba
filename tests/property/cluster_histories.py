"""Histories that a cluster can have: random messages and time, decided and folded by the real functions.

A step is three small numbers. What it means is looked up in the State of the moment, so that most steps hit something
that is there, and hypothesis can shorten a history.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from exo.domain.advance import advance
from exo.domain.fold import fold
from exo.domain.ids import ApiId, InstanceId, KeyName, MessageId, ModelId, NodeId, RunnerId, TaskId
from exo.domain.keys import Scope, digest_of
from exo.domain.messages.commands import (
    AddModel,
    CancelDownload,
    CancelGeneration,
    Command,
    CreateKey,
    DeleteInstance,
    ForgetModel,
    LimitIdleTime,
    LinkInstances,
    PlaceInstance,
    RemoveModel,
    RevokeKey,
    StartDownload,
    StartGeneration,
    UnlinkInstances,
)
from exo.domain.messages.events import Entry, Event, MasterElected, Recorded
from exo.domain.messages.reports import (
    DownloadSeen,
    GenerationEnded,
    LinksSeen,
    NodeLeft,
    NodeSeen,
    RemovalSeen,
    Report,
    RunnerStatusSeen,
)
from exo.domain.model_card import ModelCard
from exo.domain.node import Gpu, Holding, Link, NodeFacts
from exo.domain.prefill import PrefillAttempt
from exo.domain.react import react
from exo.domain.runner_status import (
    Connecting,
    Failed,
    Joining,
    Loading,
    Ready,
    RunnerStatus,
    Stopped,
    Waiting,
    Warming,
)
from exo.domain.sampling import FinishReason, Timings, Usage
from exo.domain.state import Generation, State

T = TypeVar("T")
Step = tuple[int, int, int]
GIGABYTE = 10**9
NODES = tuple(NodeId(f"node-{letter}") for letter in "abc")
KEYS = tuple(KeyName(name) for name in ("anna", "bert", "cora", "anonymous"))
SCOPES: tuple[Scope, ...] = ("inference", "read", "admin")
STATUSES: tuple[RunnerStatus, ...] = (
    Connecting(),
    Joining(port=17200),
    Loading(),
    Warming(),
    Ready(tokens_per_second=12.5),
    Ready(tokens_per_second=0.1),
    Failed(reason="out of memory"),
    Failed(reason="not a model", permanent=True),
    Stopped(),
    Waiting(),
)
PAUSES = (0.1, 1.0, 5.0, 11.0, 31.0, 61.0, 301.0, 1801.0, 3601.0, 4 * 3600.0 + 1)
"""Seconds; each deadline falls between two of them."""
ENDINGS: tuple[FinishReason, ...] = ("stop", "length", "cancelled", "error")


def _card(name: str, gigabytes: int) -> ModelCard:
    return ModelCard(
        model_id=ModelId(f"maker/{name}"),
        family="llama",
        layers=4,
        hidden_size=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        weight_bytes=gigabytes * GIGABYTE,
        context=2048,
        supports_tensor=name != "large",
    )


ADDED = _card("added", 3)
CARDS = (_card("small", 2), _card("middle", 7), _card("large", 40))


@dataclass
class Cluster:
    """The State of a cluster and the log that led to it."""

    state: State = field(default_factory=State)
    now: float = 1_700_000_000.0
    log: list[Recorded] = field(default_factory=list[Recorded])
    beats: dict[NodeId, float] = field(default_factory=dict[NodeId, float])
    messages: list[tuple[MessageId, Command | Report, list[Event]]] = field(
        default_factory=list[tuple[MessageId, Command | Report, list[Event]]]
    )
    """Each message with the events that it led to."""
    ids: "count[int]" = field(default_factory=count)

    def new_id(self) -> str:
        """An unused id."""
        return f"id{next(self.ids)}"

    def step(self, kind: int, first: int, second: int) -> list[Recorded]:
        """One more message, or time passing. Returns the events that it led to."""
        before = len(self.log)
        if kind == 0:
            self._time_passes(first, second)
        elif kind == 1:
            epoch = self.state.epoch + 1
            self._record([MasterElected(node_id=_pick(NODES, first), epoch=epoch)], None, "master")
        else:
            message = self._message(kind, first, second)
            self.now += 0.01
            events = [event for unit in react(self.state, message, self.now, self.new_id) for event in unit]
            message_id = MessageId(self.new_id())
            self.messages.append((message_id, message, events))
            self._record(events, message_id, "tester")
        return self.log[before:]

    def _time_passes(self, first: int, second: int) -> None:
        self.now += _pick(PAUSES, first)
        for index, node_id in enumerate(NODES):
            if second >> index & 1:
                self.beats[node_id] = self.now
        unread = {task_id: one.queued_at for task_id, one in self.state.generations.items()} if second % 2 else {}
        self._record(advance(self.state, self.now, self.new_id, self.beats, unread), None, "master")

    def _record(self, events: Sequence[Event], cause_id: MessageId | None, source: str) -> None:
        for event in events:
            entry = Entry(recorded_at=self.now, cause_id=cause_id, source=source, event=event)
            recorded = Recorded(position=self.state.position + 1, entry=entry)
            self.state = fold(self.state, recorded)
            self.log.append(recorded)

    def _message(self, kind: int, first: int, second: int) -> Command | Report:
        node_id, card = _pick(NODES, first), _pick(CARDS, second)
        match kind:
            case 2 | 3:
                return self._node_seen(node_id, second)
            case 4:
                boot_id = self.state.nodes[node_id].boot_id if node_id in self.state.nodes else "never"
                return NodeLeft(node_id=node_id, boot_id=boot_id if second % 4 else "earlier")
            case 5:
                return PlaceInstance(
                    model_id=card.model_id,
                    slots=first % 3 + 1,
                    context=first + 1,
                    only_if_absent=first % 4 == 0,
                    min_nodes=_pick((1, 1, 2, 3), second),
                    sharding=_pick(("pipeline", "tensor"), first // 2),
                )
            case 6:
                return DeleteInstance(instance_id=self._instance_id(first))
            case 7 | 8 | 9:
                return self._start(card.model_id, first)
            case 10:
                task_id = _pick([*sorted(self.state.generations), TaskId("none")], first)
                return CancelGeneration(task_id=task_id, reason="the client left")
            case 11:
                status = _pick(("started", "finished", "failed"), first // 3)
                return DownloadSeen(node_id=node_id, model_id=card.model_id, status=status, reason="no space")
            case 12:
                return self._generation_ended(first, second)
            case 21:
                return self._links_seen(node_id, second)
            case 22:
                digest = digest_of(f"secret {second}".encode())
                return CreateKey(key=_pick(KEYS, first), digest=digest, scopes=(_pick(SCOPES, second), "inference"))
            case 23:
                return RevokeKey(key=_pick(KEYS, first))
            case 24:
                return StartDownload(node_id=node_id, model_id=card.model_id)
            case 25:
                return CancelDownload(node_id=node_id, model_id=card.model_id)
            case 26:
                return AddModel(card=card if first % 4 == 0 else ADDED)
            case 27:
                return ForgetModel(model_id=_pick([card.model_id, ADDED.model_id], first))
            case 28:
                return LimitIdleTime(model_id=card.model_id, seconds=_pick((None, 0.0, 3.0, 300.0), first))
            case 29:
                return RemoveModel(model_id=card.model_id)
            case 30:
                return self._removal_seen(card, first)
            case 31:
                first_id, second_id = self._instance_id(first), self._instance_id(second)
                return LinkInstances(prefill_id=first_id, decode_id=second_id)
            case 32:
                return UnlinkInstances(decode_id=_pick([*sorted(self.state.prefill_links), InstanceId("none")], first))
            case _:
                return self._runner_seen(kind, first, second)

    def _instance_id(self, variant: int) -> InstanceId:
        return _pick([*sorted(self.state.instances), InstanceId("none")], variant)

    def _node_seen(self, node_id: NodeId, variant: int) -> NodeSeen:
        known = self.state.nodes.get(node_id)
        boot_id = known.boot_id if known and variant % 4 else self.new_id()
        memory = _pick((8, 16, 64), NODES.index(node_id)) * GIGABYTE
        facts = NodeFacts(
            hostname=f"host of {node_id}",
            system="linux",
            chip="x",
            cores=8,
            memory_bytes=memory,
            disk_bytes=10**12,
            gpus=(Gpu(name="g", total_bytes=memory, unified=True),) if node_id == NODES[1] else (),
            engines=("mlx",) if variant % 8 else (),
            version="0.1.0",
        )
        holdings = tuple(
            Holding(card=card, status="ready" if (variant + index) % 2 else "obtainable")
            for index, card in enumerate(CARDS)
            if (variant + index) % 5
        )
        available = memory * (variant % 11) // 10 if variant % 11 else memory
        return NodeSeen(node_id=node_id, boot_id=boot_id, facts=facts, available_bytes=available, holdings=holdings)

    def _removal_seen(self, card: ModelCard, variant: int) -> RemovalSeen:
        """Of one that is waited for, where there is one."""
        waited_for = [(node_id, one) for node_id, node in sorted(self.state.nodes.items()) for one in node.removals]
        node_id, model_id = _pick(sorted(waited_for) or [(NODES[0], card.model_id)], variant)
        if variant % 3 == 0:
            return RemovalSeen(node_id=node_id, model_id=model_id, status="failed", reason="it is yours")
        holding = Holding(card=card, status="obtainable") if model_id == card.model_id else None
        return RemovalSeen(node_id=node_id, model_id=model_id, status="removed", holding=holding)

    def _links_seen(self, node_id: NodeId, variant: int) -> LinksSeen:
        known = self.state.nodes.get(node_id)
        others = [other for other in NODES if other != node_id]
        reached = others if variant % 4 else others[:1]
        links = tuple(Link(to=other, kind="ethernet", address=f"10.0.0.{NODES.index(other)}") for other in reached)
        return LinksSeen(node_id=node_id, boot_id=known.boot_id if known else "never", links=links)

    def _start(self, model_id: ModelId, variant: int) -> StartGeneration:
        live = sorted(self.state.generations)
        task_id = _pick(live, variant) if live and variant % 8 == 0 else TaskId(self.new_id())
        prompt = "hello" if variant % 5 == 0 else None
        return StartGeneration(
            task_id=task_id,
            model_id=model_id,
            estimated_tokens=5,
            key="k",
            reply_to=ApiId("api"),
            prompt=prompt,
            needs_reader=variant % 3 == 0,
        )

    def _generation_ended(self, first: int, second: int) -> GenerationEnded:
        task_id = _pick([*sorted(self.state.generations), TaskId("none")], first)
        known = self.state.generations.get(task_id)
        process = known.processes[0] if known and known.processes and second % 5 else "another"
        return GenerationEnded(
            task_id=task_id,
            process=process,
            finish_reason=_pick(ENDINGS, second),
            usage=Usage(prompt_tokens=first, completion_tokens=second),
            timings=Timings(wait=0.1 * first, prefill=0.2, decode=1 / 3),
            prefill=self._attempt(known, second),
        )

    def _attempt(self, generation: Generation | None, variant: int) -> PrefillAttempt | None:
        link = self.state.prefill_links.get(generation.instance_id) if generation and generation.instance_id else None
        error = "" if variant % 3 else "it is gone"
        return PrefillAttempt(instance_id=link.prefill_id, tokens=variant, error=error) if link else None

    def _runner_seen(self, kind: int, first: int, second: int) -> RunnerStatusSeen:
        runner_id = _pick([*sorted(self.state.runners), RunnerId("none")], first)
        runner = self.state.runners.get(runner_id)
        likely = runner is not None and kind % 2 == 1
        ranks = len(self.state.instances[runner.instance_id].shards) if runner else 1
        status = _next(runner.status, ranks) if runner and likely else _pick(STATUSES, second)
        process = runner.process if runner and second % 6 else "another"
        if isinstance(status, Connecting):
            process = self.new_id()
        return RunnerStatusSeen(runner_id=runner_id, process=process, status=status)


def _next(status: RunnerStatus, ranks: int) -> RunnerStatus:
    """What a runner that is well comes into next."""
    match status:
        case Connecting():
            return Joining(port=17200) if ranks > 1 else Loading()
        case Joining():
            return Loading()
        case Loading():
            return Warming()
        case Warming():
            return Ready(tokens_per_second=20.0)
        case _:
            return Connecting()


def _pick(values: Sequence[T], index: int) -> T:
    return values[index % len(values)]


def _long(seed: int, length: int) -> list[Step]:
    """A history of a cluster whose three nodes are there, in which more often than not things go well."""
    random = Random(seed)
    joins = [(2, node, variant) for node, variant in ((0, 1), (1, 2), (2, 3))]
    joins += [(21, node, 1) for node in range(random.randrange(4))]
    runners = [8 if kind % 2 else 1 for kind in range(13, 21)]
    weights = [4, 1, 1, 1, 1, 2, 1, 4, 4, 4, 2, 1, 5, *runners, 1, 1, 1, 2, 1, 1, 1, 1, 2, 2, 4, 1]
    kinds = random.choices(range(33), weights, k=length)
    return joins + [(kind, random.randrange(64), random.randrange(64)) for kind in kinds]


_steps = st.tuples(st.integers(0, 32), st.integers(0, 63), st.integers(0, 63))
histories = st.one_of(st.lists(_steps, max_size=40), st.builds(_long, st.integers(0, 2**32), st.integers(0, 150)))


def run(history: Sequence[Step]) -> Cluster:
    """The cluster after a history."""
    cluster = Cluster()
    for step in history:
        cluster.step(*step)
    return cluster
