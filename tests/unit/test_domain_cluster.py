"""A small cluster whose history a test writes message by message, and that it is what it says."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TypeVar

from exo.domain.advance import advance
from exo.domain.fold import fold
from exo.domain.ids import ApiId, ModelId, NodeId, TaskId
from exo.domain.instance import Instance
from exo.domain.invariants import violations
from exo.domain.messages.commands import Command, PlaceInstance, StartGeneration
from exo.domain.messages.events import CommandRejected, Entry, Event, InstancePlaced, Recorded
from exo.domain.messages.reports import GenerationEnded, NodeSeen, Report, RunnerStatusSeen
from exo.domain.model_card import ModelCard
from exo.domain.node import Gpu, Holding, NodeFacts
from exo.domain.react import react
from exo.domain.runner_status import Connecting, Loading, Ready, RunnerStatus, Warming
from exo.domain.sampling import FinishReason, Timings, Usage
from exo.domain.shard import EngineName
from exo.domain.state import Runner, State, instances_of

E = TypeVar("E")
GB = 10**9
BEGIN = 1_700_000_000.0
STARTING: tuple[RunnerStatus, ...] = (Connecting(), Loading(), Warming(), Ready(tokens_per_second=12.5))
"""The way of a runner that is well."""


def card(name: str, gigabytes: float = 2.0, *, family: str = "llama", context: int = 2048) -> ModelCard:
    """A model whose weights take `gigabytes`, and 256 bytes of keys and values a token."""
    return ModelCard(
        model_id=ModelId(f"maker/{name}"),
        family=family,
        layers=4,
        hidden_size=64,
        heads=4,
        kv_heads=1,
        head_dim=16,
        weight_bytes=int(gigabytes * GB),
        context=context,
    )


SMALL, MIDDLE, LARGE = card("small", 2), card("middle", 7), card("large", 40)
CARDS = (SMALL, MIDDLE, LARGE)


def of_type(events: Sequence[Event], kind: type[E]) -> list[E]:
    """Those of one type."""
    return [event for event in events if isinstance(event, kind)]


def types(events: Sequence[Event]) -> list[str]:
    """Their types, in order."""
    return [event.type for event in events]


class Cluster:
    """State, the clock, and the log that led there."""

    def __init__(self) -> None:
        self.state = State()
        self.now = BEGIN
        self.log: list[Recorded] = []
        self._ids = count()

    def new_id(self) -> str:
        """An unused id; later ones sort after earlier ones."""
        return f"id{next(self._ids):04d}"

    def record(self, *events: Event) -> list[Event]:
        """Fold events. Every State on the way is sound."""
        for event in events:
            entry = Entry(recorded_at=self.now, cause_id=None, source="test", event=event)
            self.log.append(Recorded(position=self.state.position + 1, entry=entry))
            self.state = fold(self.state, self.log[-1])
            assert violations(self.state) == []
        return list(events)

    def tell(self, message: Command | Report) -> list[Event]:
        """What a message leads to, recorded."""
        units = react(self.state, message, self.now, self.new_id)
        return self.record(*(event for unit in units for event in unit))

    def passes(
        self,
        seconds: float,
        beats: Mapping[NodeId, float] | None = None,
        read: Mapping[TaskId, float] | None = None,
    ) -> list[Event]:
        """What so much time leads to, recorded. `beats`: when each node was last seen; `read`: when each generation's
        reader was; None: a moment ago."""
        self.now += seconds
        return self.record(*advance(self.state, self.now, self.new_id, beats or {}, read or {}))

    def refusal(self, command: Command) -> CommandRejected:
        """The only event that a refused command leads to."""
        (event,) = self.tell(command)
        assert isinstance(event, CommandRejected)
        assert event.command == command.type
        return event

    def join(
        self,
        name: str = "a",
        *,
        gigabytes: int = 16,
        available: int | None = None,
        cards: Sequence[ModelCard] = CARDS,
        ready: Sequence[ModelCard] = CARDS,
        engines: tuple[EngineName, ...] = ("mlx",),
        unified: bool = False,
        boot_id: str = "boot",
    ) -> NodeId:
        """A node that joins with these models, or that changes."""
        self.tell(
            node_seen(
                name,
                gigabytes=gigabytes,
                available=available,
                cards=cards,
                ready=ready,
                engines=engines,
                unified=unified,
                boot_id=boot_id,
            )
        )
        return NodeId(name)

    def place(self, model: ModelCard = SMALL, *, slots: int = 2, ready: bool = True) -> Instance:
        """An instance, with its runners ready unless told otherwise."""
        events = self.tell(PlaceInstance(model_id=model.model_id, slots=slots))
        instance = of_type(events, InstancePlaced)[0].instance
        if ready:
            self.make_ready(instance)
        return instance

    def make_ready(self, instance: Instance) -> list[Event]:
        """Its runners started and ready; the events of the last step."""
        process, events = self.new_id(), list[Event]()
        for status in STARTING:
            events = self.runner_seen(instance, status, process)
        return events

    def runner_of(self, instance: Instance) -> Runner:
        """Its first runner as State has it now."""
        return self.state.runners[instance.runner_ids[0]]

    def runner_seen(self, instance: Instance, status: RunnerStatus, process: str | None = None) -> list[Event]:
        """A report about its first runner, by its current process unless told otherwise."""
        runner = self.runner_of(instance)
        return self.tell(
            RunnerStatusSeen(
                runner_id=runner.runner_id,
                process=runner.process if process is None else process,
                status=status,
            )
        )

    def start(
        self, task: str, model: ModelCard = SMALL, prompt: str | None = None, client: str = "anna"
    ) -> list[Event]:
        """A request for a model."""
        return self.tell(start(task, model, prompt, client))

    def ended(self, task: str, reason: FinishReason = "stop", process: str | None = None) -> list[Event]:
        """The report that a generation is over, by the process that has it unless told otherwise."""
        if process is None:
            process = self.state.generations[TaskId(task)].processes[0]
        return self.tell(
            GenerationEnded(
                task_id=TaskId(task),
                process=process,
                finish_reason=reason,
                usage=Usage(prompt_tokens=3, completion_tokens=4),
                timings=Timings(wait=0.1, prefill=0.2, decode=0.3),
            )
        )


def start(task: str, model: ModelCard = SMALL, prompt: str | None = None, client: str = "anna") -> StartGeneration:
    """The command of a request."""
    return StartGeneration(
        task_id=TaskId(task),
        model_id=model.model_id,
        estimated_tokens=5,
        key="anna",
        client=client,
        reply_to=ApiId("api"),
        prompt=prompt,
    )


def node_seen(
    name: str = "a",
    *,
    gigabytes: int = 16,
    available: int | None = None,
    cards: Sequence[ModelCard] = CARDS,
    ready: Sequence[ModelCard] = CARDS,
    engines: tuple[EngineName, ...] = ("mlx",),
    unified: bool = False,
    boot_id: str = "boot",
) -> NodeSeen:
    """The report of a machine with `gigabytes` of memory, all free unless `available`, also in gigabytes, is less."""
    memory = gigabytes * GB
    return NodeSeen(
        node_id=NodeId(name),
        boot_id=boot_id,
        facts=NodeFacts(
            hostname=f"host-{name}",
            system="linux",
            chip="x",
            cores=8,
            memory_bytes=memory,
            disk_bytes=10**12,
            gpus=(Gpu(name="g", total_bytes=memory, unified=True),) if unified else (),
            engines=engines,
            version="0.1.0",
        ),
        available_bytes=memory if available is None else available * GB,
        holdings=tuple(Holding(card=one, status="ready" if one in ready else "obtainable") for one in cards),
    )


def test_a_joined_node_a_placed_model_and_a_request_end_in_an_answer() -> None:
    cluster = Cluster()
    cluster.join()
    instance = cluster.place()
    assert types(cluster.start("t1")) == ["GenerationQueued", "GenerationDispatched"]
    assert cluster.state.generations[TaskId("t1")].instance_id == instance.instance_id
    assert types(cluster.ended("t1")) == ["GenerationFinished"]
    assert instances_of(cluster.state, SMALL.model_id) == [instance]
    assert [recorded.entry.event.type for recorded in cluster.log] == [
        "NodeJoined",
        "InstancePlaced",
        "RunnerStarted",
        "RunnerLoading",
        "RunnerWarming",
        "RunnerReady",
        "GenerationQueued",
        "GenerationDispatched",
        "GenerationFinished",
    ]
