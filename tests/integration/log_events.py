"""A short history of one node with one model, as long as a test needs it."""

from collections.abc import Iterator
from itertools import count, islice

from exo.domain.ids import ApiId, InstanceId, MessageId, NodeId, RunnerId, TaskId
from exo.domain.instance import Instance
from exo.domain.messages.events import (
    Entry,
    Event,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    InstancePlaced,
    MasterElected,
    NodeJoined,
    Recorded,
    RunnerReady,
    RunnerStarted,
)
from exo.domain.node import Holding
from exo.domain.sampling import Timings, Usage
from tests import builders

BEGIN = 1_700_000_000.0
NODE, INSTANCE, RUNNER = NodeId("node-a"), InstanceId("instance-a"), RunnerId("runner-a")
CARD = builders.card()
FACTS = builders.facts("host-ä")
FIRST_GENERATION = 6
"""The position that its first event has; each takes three."""


def history(length: int, *, after: int = 0) -> list[Recorded]:
    """The events at positions `after` + 1 to `after` + `length`."""
    return [
        Recorded(
            position=position,
            entry=Entry(recorded_at=BEGIN + position / 8, cause_id=cause, source="worker", event=event),
        )
        for position, (cause, event) in islice(enumerate(_events(), start=1), after, after + length)
    ]


def _events() -> Iterator[tuple[MessageId | None, Event]]:
    yield None, MasterElected(node_id=NODE, epoch=1)
    joined = NodeJoined(
        node_id=NODE,
        boot_id="boot",
        facts=FACTS,
        available_bytes=10**9,
        holdings=(Holding(card=CARD, status="ready"),),
    )
    yield MessageId("join"), joined
    yield MessageId("place"), InstancePlaced(instance=_instance(), reason="it fits")
    yield MessageId("started"), RunnerStarted(runner_id=RUNNER, process="process-a")
    yield MessageId("ready"), RunnerReady(runner_id=RUNNER, tokens_per_second=12.5)
    for number in count():
        task_id, start = TaskId(f"task-{number}"), MessageId(f"start-{number}")
        yield (
            start,
            GenerationQueued(
                task_id=task_id, model_id=CARD.model_id, estimated_tokens=3, key="anna", reply_to=ApiId("api")
            ),
        )
        yield start, GenerationDispatched(task_id=task_id, instance_id=INSTANCE)
        usage, timings = Usage(prompt_tokens=7, completion_tokens=5, cached_tokens=2), Timings(wait=0.5, decode=0.25)
        yield (
            MessageId(f"end-{number}"),
            GenerationFinished(task_id=task_id, finish_reason="stop", usage=usage, timings=timings),
        )


def _instance() -> Instance:
    shard = builders.whole(CARD, RUNNER, NODE)
    return builders.instance(shard, instance_id=INSTANCE)
