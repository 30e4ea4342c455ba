"""A chain of causes as a story: its events in order, each with where it comes from and what it rests on. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from typing_extensions import TypedDict

from exo.domain.machine_names import machine_names
from exo.domain.messages.events import (
    Event,
    GenerationQueued,
    InstancePlaced,
    NodeChanged,
    NodeJoined,
    Recorded,
)
from exo.log.explain.causes import Cause, cause_of, reasons_of, subject_of
from exo.log.explain.entities import Entity, Kind
from exo.log.explain.sentences import sentence

STEPS_MOST = 60
"""Events that a story tells; of a longer one the beginning and the end."""


class EntityTold(TypedDict):
    """What a story is about."""

    kind: Kind
    id: str


class CauseTold(TypedDict):
    """What led to an event."""

    kind: Literal["command", "report", "master"]
    name: str
    id: str | None
    source: str
    text: str


class StepTold(TypedDict):
    """A Step as plain data; `event` without prompts and answers."""

    position: int
    recorded_at: float
    type: str
    depth: int
    text: str
    cause: CauseTold
    because: list[int]
    event: dict[str, object]


class StoryTold(TypedDict):
    """A Story as plain data; `summary` is its last step's text."""

    entity: EntityTold
    position: int
    summary: str
    steps: list[StepTold]
    left_out: int


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a story."""

    recorded: Recorded
    depth: int
    """How many things lie between this one and the first of the chain: a runner is deeper than its instance."""
    text: str
    cause: Cause
    because: tuple[int, ...]
    """The positions of earlier events, and of those of the same decision, that it rests on."""

    @property
    def position(self) -> int:
        """Of the event."""
        return self.recorded.position


@dataclass(frozen=True, slots=True)
class Story:
    """How something came to be as it is."""

    entity: Entity
    position: int
    """As of which event of the log."""
    steps: tuple[Step, ...]
    """Oldest first."""
    left_out: int
    """Events between the first and the last steps that are not told."""

    @property
    def last(self) -> Step:
        """The newest event that is about the entity itself."""
        own = [step for step in self.steps if subject_of(step.recorded.entry.event) == self.entity]
        return own[-1] if own else self.steps[-1]

    def plain(self) -> StoryTold:
        """The same as plain data, for JSON."""
        return {
            "entity": {"kind": self.entity.kind, "id": self.entity.id},
            "position": self.position,
            "summary": self.last.text,
            "steps": [_plain(step) for step in self.steps],
            "left_out": self.left_out,
        }


def tell(
    entity: Entity,
    position: int,
    events: Iterable[Recorded],
    decisions: Mapping[int, Sequence[Recorded]],
    nodes: Iterable[Recorded],
) -> Story:
    """The story of an entity.

    `events` are those to tell, in any order; `decisions`, by position, all that was decided together with each;
    `nodes` events that say which machine a node is.
    """
    ordered = sorted({one.position: one for one in events}.values(), key=lambda one: one.position)
    hosts = machine_names(
        {
            str(one.entry.event.node_id): one.entry.event.facts.hostname
            for one in [*nodes, *ordered]
            if isinstance(one.entry.event, NodeJoined | NodeChanged)
        }
    )
    depths = _depths([one.entry.event for one in ordered])
    steps: list[Step] = []
    for index, recorded in enumerate(ordered):
        event, decision = recorded.entry.event, decisions.get(recorded.position, ())
        step = Step(
            recorded,
            depths[subject_of(event)],
            sentence(event, hosts),
            cause_of(recorded, decision, hosts),
            tuple(reasons_of(recorded, ordered[:index], decision)),
        )
        steps.append(step)
    kept = _shortened(steps)
    return Story(entity, position, tuple(kept), len(steps) - len(kept))


def _depths(events: Sequence[Event]) -> dict[Entity, int]:
    """How deep each thing lies: what asked for it, or holds it, is one step above."""
    depths: dict[Entity, int] = {}
    for index, event in enumerate(events):
        depth = 0
        if isinstance(event, InstancePlaced):
            asked = any(isinstance(one, GenerationQueued) and _asks(one, event) for one in events[:index])
            depth = 1 if asked else 0
            for runner_id in event.instance.runner_ids:
                depths[Entity("runner", runner_id)] = depth + 1
            depths.setdefault(Entity("model", event.instance.model_id), depth + 1)
        depths.setdefault(subject_of(event), depth)
    return depths


def _asks(queued: GenerationQueued, placed: InstancePlaced) -> bool:
    return queued.model_id == placed.instance.model_id


def _shortened(steps: list[Step]) -> list[Step]:
    if len(steps) <= STEPS_MOST:
        return steps
    beginning = STEPS_MOST // 4
    return steps[:beginning] + steps[beginning - STEPS_MOST :]


def _plain(step: Step) -> StepTold:
    entry, cause = step.recorded.entry, step.cause
    return {
        "position": step.position,
        "recorded_at": entry.recorded_at,
        "type": entry.event.type,
        "depth": step.depth,
        "text": step.text,
        "cause": {"kind": cause.kind, "name": cause.name, "id": cause.id, "source": cause.sender, "text": cause.text},
        "because": list(step.because),
        "event": entry.event.model_dump(mode="json", exclude={"prompt", "output"}),
    }
