"""What a busy cluster logs: mostly generations, and now and then a runner that fails or a node that changes."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from random import Random

from exo.domain.ids import ApiId, InstanceId, MessageId, ModelId, NodeId, RunnerId, TaskId
from exo.domain.messages.events import (
    CancellationRequested,
    CommandRejected,
    Entry,
    Event,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    InstancePlaced,
    MasterElected,
    NodeChanged,
    NodeJoined,
    Recorded,
    RunnerFailed,
    RunnerLoading,
    RunnerReady,
    RunnerStarted,
    RunnerWarming,
)
from exo.domain.model_card import HubSource, ModelCard
from exo.domain.node import Gpu, Holding, Interface, NodeFacts
from exo.domain.sampling import Timings, Usage
from tests import builders

BEGIN = 1_790_000_000.0
IN_FLIGHT = 16
"""Generations that run at a time."""

Caused = tuple[MessageId | None, Event]


def recorded(events: Iterable[Caused]) -> Iterator[Recorded]:
    """The events at the positions from 1 on, twenty a second."""
    for position, (cause, event) in enumerate(events, start=1):
        entry = Entry(recorded_at=BEGIN + position / 20, cause_id=cause, source="5f1e0c92a7d34b6d", event=event)
        yield Recorded(position=position, entry=entry)


def history(nodes: int = 4) -> Iterator[Caused]:
    """A cluster comes up, each node with one model, and works without end."""
    random = Random(nodes)
    yield from joined(nodes, random)
    yield from placed(nodes, random)
    yield from work(nodes, random)


def joined(nodes: int, random: Random) -> Iterator[Caused]:
    """A master, and every node."""
    yield None, MasterElected(node_id=node_id(0), epoch=1)
    for number in range(nodes):
        node = NodeJoined(
            node_id=node_id(number),
            boot_id=new_id(random),
            facts=facts(number),
            available_bytes=48 << 30,
            holdings=holdings(),
        )
        yield MessageId(new_id(random)), node


def placed(nodes: int, random: Random) -> Iterator[Caused]:
    """An instance on every node, up to its being ready."""
    for number in range(nodes):
        shard = builders.whole(card(0), runner_id(number), node_id(number))
        instance = builders.instance(shard, instance_id=instance_id(number), context=32768, slots=8)
        yield MessageId(new_id(random)), InstancePlaced(instance=instance, reason="48.0 GiB free, 16.4 GiB needed")
        yield from started(number, random)


def started(number: int, random: Random) -> Iterator[Caused]:
    """A runner's process, from its start to its being ready."""
    events = (
        RunnerStarted(runner_id=runner_id(number), process=new_id(random)),
        RunnerLoading(runner_id=runner_id(number)),
        RunnerWarming(runner_id=runner_id(number)),
        RunnerReady(runner_id=runner_id(number), tokens_per_second=41.5),
    )
    for event in events:
        yield MessageId(new_id(random)), event


def work(nodes: int, random: Random) -> Iterator[Caused]:
    """Generations, and of a thousand events about a dozen of other kinds."""
    running: deque[TaskId] = deque()
    for number in count():
        task_id, cause = TaskId(new_id(random)), MessageId(new_id(random))
        yield cause, queued(task_id)
        yield cause, GenerationDispatched(task_id=task_id, instance_id=instance_id(number % nodes))
        running.append(task_id)
        if len(running) > IN_FLIGHT:
            yield MessageId(new_id(random)), finished(running.popleft(), random)
        if number % 100 == 50:
            cancelled = CancellationRequested(task_id=running[-1], reason="the client left")
            yield MessageId(new_id(random)), cancelled
            rejected = CommandRejected(command="PlaceInstance", code="no_capacity", reason="no node has 80 GiB free")
            yield MessageId(new_id(random)), rejected
        if number % 100 == 75:
            yield MessageId(new_id(random)), changed(number % nodes, random)
        if number % 500 == 250:
            failed = RunnerFailed(runner_id=runner_id(number % nodes), reason="ended with signal 9", retry_at=BEGIN)
            yield MessageId(new_id(random)), failed
            yield from started(number % nodes, random)


def queued(task_id: TaskId) -> GenerationQueued:
    """A request came in."""
    return GenerationQueued(
        task_id=task_id,
        model_id=card(0).model_id,
        estimated_tokens=412,
        key="team-search",
        reply_to=ApiId("c0ffee1234"),
    )


def finished(task_id: TaskId, random: Random) -> GenerationFinished:
    """Its answer is out."""
    return GenerationFinished(
        task_id=task_id,
        finish_reason="stop",
        usage=Usage(prompt_tokens=random.randrange(2000), completion_tokens=random.randrange(900), cached_tokens=64),
        timings=Timings(wait=random.random(), prefill=random.random(), decode=10 * random.random()),
    )


def changed(number: int, random: Random) -> NodeChanged:
    """A node's free memory is another."""
    free = random.randrange(48 << 30)
    return NodeChanged(node_id=node_id(number), facts=facts(number), available_bytes=free, holdings=holdings())


def facts(number: int) -> NodeFacts:
    """A machine with two network interfaces and a GPU."""
    return NodeFacts(
        hostname=f"mac-studio-{number}",
        system="darwin",
        chip="Apple M4 Max",
        cores=16,
        memory_bytes=64 << 30,
        disk_bytes=10**12,
        interfaces=(
            Interface(name="en0", addresses=("192.168.1.17", "fe80::1c2d"), speed_mbit=10_000),
            Interface(name="bridge0", addresses=("169.254.7.3",), speed_mbit=40_000),
        ),
        gpus=(Gpu(name="Apple M4 Max", total_bytes=64 << 30, unified=True),),
        engines=("mlx", "scripted"),
        version="0.1.0",
    )


def holdings() -> tuple[Holding, ...]:
    """Two models on the disk, one that can be had."""
    return (
        Holding(card=card(0), status="ready"),
        Holding(card=card(1), status="ready"),
        Holding(card=card(2), status="obtainable"),
    )


def card(number: int) -> ModelCard:
    """One of a few models."""
    repository = f"mlx-community/Llama-3.{number}-8B-Instruct-4bit"
    return ModelCard(
        model_id=ModelId(repository),
        family="llama",
        layers=32,
        hidden_size=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        weight_bytes=4_517_000_000,
        context=131_072,
        quantization="4bit",
        sources=(HubSource(repository=repository),),
    )


def node_id(number: int) -> NodeId:
    """The id of a node, by its number."""
    return NodeId(f"{number:016x}")


def instance_id(number: int) -> InstanceId:
    """The id of a node's instance."""
    return InstanceId(f"{number:032x}")


def runner_id(number: int) -> RunnerId:
    """The id of the only runner of a node's instance."""
    return RunnerId(f"{number:032x}")


def new_id(random: Random) -> str:
    """An id as long as the real ones."""
    return f"{random.getrandbits(128):032x}"
