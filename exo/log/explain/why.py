"""Gathers the events that led to something, walking back from what it is now."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import or_, select

from exo.domain.ids import InstanceId, MessageId, ModelId, NodeId, TaskId
from exo.domain.messages.events import (
    DownloadStarted,
    GenerationDispatched,
    GenerationFinished,
    GenerationQueued,
    InstanceDeleted,
    InstanceFailed,
    InstancePlaced,
    InstancesLinked,
    NodeChanged,
    NodeJoined,
    Recorded,
    RunnerFailed,
    RunnerStarted,
)
from exo.errors import Rejected
from exo.log import tables as t
from exo.log.explain import causes
from exo.log.explain.entities import Entity
from exo.log.explain.searching import Filter, OnProgress, events_at, find_entity, last_matching, matching, no_progress
from exo.log.explain.story import STEPS_MOST, Story, tell
from exo.log.reading import LogReader

_Types = tuple[type[object], ...]
_EXPLAINED = "node, instance, runner, generation, model, key or command"
_NEIGHBOURS = 20
"""Positions around an event without a cause where the rest of the same round is looked for."""


async def why(reader: LogReader, text: str, upto: int, on_progress: OnProgress = no_progress) -> Story:
    """How the entity that `text` stands for came to be what it was at the position `upto`.

    `on_progress`: see `find_entity`. Raises Rejected where no event up to there names it, or it stands for several,
    and Fatal where an event cannot be read.
    """
    entity = await find_entity(reader, text, upto, on_progress)
    chain = _Chain(reader, upto)
    match entity.kind:
        case "generation":
            await chain.generation(TaskId(entity.id))
        case "instance":
            await chain.instance(entity)
        case "runner" | "process":
            entity = await chain.runner(entity)
        case "node":
            await chain.node(entity)
        case "model":
            await chain.model(entity)
        case "key":
            await chain.key(entity)
        case "command":
            chain.add(await reader.caused_by(MessageId(entity.id)))
        case _:
            advice = f"`exo log tail --entity {entity.id}` shows the events that name it"
            raise Rejected(f"{entity} is no {_EXPLAINED}, which is what can be explained; {advice}", param="entity")
    return await chain.story(entity)


@dataclass(slots=True)
class _Chain:
    """The events found so far."""

    reader: LogReader
    upto: int
    found: dict[int, Recorded] = field(default_factory=dict[int, Recorded])
    nodes: set[NodeId] = field(default_factory=set[NodeId])
    """Whose machines the story speaks of."""
    decisions: dict[str, list[Recorded]] = field(default_factory=dict[str, list[Recorded]])

    def add(self, events: Sequence[Recorded]) -> None:
        """Events of the story."""
        self.found |= {one.position: one for one in events if one.position <= self.upto}

    async def generation(self, task_id: TaskId) -> None:
        """A request: from being queued, by way of the instance that it waited for, to its end."""
        own = await self._all(Entity("generation", task_id), causes.GENERATION_EVENTS)
        self.add(own)
        queued = next((one for one in own if isinstance(one.entry.event, GenerationQueued)), None)
        end = next((one for one in own if isinstance(one.entry.event, GenerationFinished)), None)
        given = [one for one in own if isinstance(one.entry.event, GenerationDispatched)]
        until = end.position if end else self.upto
        for one in given:
            if isinstance(one.entry.event, GenerationDispatched):
                await self._where(one.entry.event.instance_id, one.position, until)
        if queued is not None and isinstance(queued.entry.event, GenerationQueued):
            waited_until = given[0].position if given else until
            await self._waiting(queued.entry.event.model_id, queued.position, waited_until)
        if end is not None:
            await self._with(end)
            await self._linked(end)

    async def instance(self, entity: Entity) -> None:
        """A placement: who asked for it, what became of its runners, and how it ended."""
        own = await self._all(entity, (*causes.INSTANCE_EVENTS, *causes.LINK_EVENTS))
        self.add(own)
        for one in own:
            match one.entry.event:
                case InstancePlaced() as event:
                    await self._asked(one, event)
                    runners = [Entity("runner", runner_id) for runner_id in event.instance.runner_ids]
                    await self._last_of(runners, causes.RUNNER_EVENTS, one.position, self.upto)
                    await self._downloads(event, one.position)
                case _:
                    await self._with(one)

    async def runner(self, entity: Entity) -> Entity:
        """A runner, by its id or by that of one of its processes: its instance's story with the runner's own."""
        if entity.kind == "process":
            started = await self._all(entity, (RunnerStarted,))
            runner_ids = [one.entry.event.runner_id for one in started if isinstance(one.entry.event, RunnerStarted)]
            if not runner_ids:
                raise Rejected(f"no runner was started as {entity}", code="not_found", param="entity")
            entity = Entity("runner", runner_ids[-1])
        for one in await self._all(entity, (InstancePlaced,)):
            if isinstance(one.entry.event, InstancePlaced):
                await self.instance(Entity("instance", one.entry.event.instance.instance_id))
        return entity

    async def node(self, entity: Entity) -> None:
        """A machine: when it came and changed, what it fetched, and what was put on it."""
        kinds = (*causes.NODE_EVENTS, *causes.DOWNLOAD_EVENTS, *causes.REMOVAL_EVENTS, InstancePlaced)
        await self._last_of([entity], kinds, 0, self.upto)
        self.nodes.add(NodeId(entity.id))
        await self._ends_of_placed()

    async def model(self, entity: Entity) -> None:
        """A model: who made it known, where it was fetched to, where it was put, and what became of that."""
        kinds = (*causes.MODEL_EVENTS, *causes.DOWNLOAD_EVENTS, *causes.REMOVAL_EVENTS, InstancePlaced)
        await self._last_of([entity], kinds, 0, self.upto)
        if not self.found:
            raise Rejected(f"nothing was done with {entity} yet: nodes told of it, and no more", code="not_found")
        await self._ends_of_placed()

    async def key(self, entity: Entity) -> None:
        """A key: when it was made, by whom, and when it was revoked."""
        own = await self._all(entity, causes.KEY_EVENTS)
        if not own:
            advice = f"`exo log tail --entity {entity.id}` shows the events that name it"
            raise Rejected(f"no event tells that {entity} was made; {advice}", code="not_found", param="entity")
        self.add(own)
        self.nodes |= {NodeId(one.entry.source) for one in own}

    async def story(self, entity: Entity) -> Story:
        """All that was found, told."""
        decisions = {position: await self._decision(one) for position, one in self.found.items()}
        named: list[Recorded] = []
        for node in sorted(self._node_entities()):
            wanted = Filter(frozenset([node]), _names((NodeJoined, NodeChanged)))
            named += await last_matching(self.reader, wanted, 1, 0, self.upto)
        return tell(entity, self.upto, self.found.values(), decisions, named)

    def _node_entities(self) -> frozenset[Entity]:
        nodes = set(self.nodes)
        for one in self.found.values():
            event = one.entry.event
            if isinstance(event, InstancePlaced):
                nodes |= set(event.instance.node_ids)
            elif isinstance(event, causes.DOWNLOAD_EVENTS):
                nodes.add(event.node_id)
            if one.entry.cause_id is None:
                nodes.add(NodeId(one.entry.source))
        return frozenset(Entity("node", node_id) for node_id in nodes)

    async def _all(self, entity: Entity, types: _Types) -> list[Recorded]:
        wanted = Filter(frozenset([entity]), _names(types))
        return [one async for one in matching(self.reader, wanted, 0, self.upto)]

    async def _last_of(self, entities: Sequence[Entity], types: _Types, after: int, upto: int) -> None:
        wanted = Filter(frozenset(entities), _names(types))
        self.add(await last_matching(self.reader, wanted, STEPS_MOST, after, upto))

    async def _where(self, instance_id: InstanceId, position: int, until: int) -> None:
        """The instance that a generation was given to at a position, and its runners from their last start on."""
        wanted = Filter(frozenset([Entity("instance", instance_id)]), _names((InstancePlaced,)))
        for one in await last_matching(self.reader, wanted, 1, 0, position):
            if isinstance(one.entry.event, InstancePlaced):
                self.add([one])
                await self._asked(one, one.entry.event)
                for runner_id in one.entry.event.instance.runner_ids:
                    await self._runner_around(Entity("runner", runner_id), one.position, position, until)

    async def _linked(self, end: Recorded) -> None:
        """Who was asked to prefill for a generation, and by which link."""
        event = end.entry.event
        if isinstance(event, GenerationFinished) and event.prefill is not None:
            prefill = Entity("instance", event.prefill.instance_id)
            for types in ((InstancePlaced,), (InstancesLinked,)):
                wanted = Filter(frozenset([prefill]), _names(types))
                self.add(await last_matching(self.reader, wanted, 1, 0, end.position))

    async def _runner_around(self, runner: Entity, placed: int, given: int, until: int) -> None:
        started = Filter(frozenset([runner]), _names((RunnerStarted,)))
        starts = await last_matching(self.reader, started, 1, placed, given)
        begin = starts[0].position - 1 if starts else placed
        await self._last_of([runner], causes.RUNNER_EVENTS, begin, until)

    async def _waiting(self, model_id: ModelId, queued: int, until: int) -> None:
        """What happened to a model's instances and downloads while a generation waited."""
        model = Entity("model", model_id)
        await self._last_of([model], (*causes.DOWNLOAD_EVENTS, InstancePlaced), queued, until)
        await self._there_already(model, queued, until)
        for one in list(self.found.values()):
            if isinstance(one.entry.event, InstancePlaced) and queued < one.position <= until:
                event = one.entry.event
                await self._last_of([Entity("instance", event.instance.instance_id)], _ENDS, queued, until)
                runners = [Entity("runner", runner_id) for runner_id in event.instance.runner_ids]
                await self._last_of(runners, (RunnerFailed,), queued, until)

    async def _there_already(self, model: Entity, queued: int, until: int) -> None:
        """The model's newest instance of before, if it was still there: its runners were not ready, or all taken."""
        wanted = Filter(frozenset([model]), _names((InstancePlaced,)))
        for one in await last_matching(self.reader, wanted, 1, 0, queued):
            if isinstance(one.entry.event, InstancePlaced) and one.position not in self.found:
                instance = one.entry.event.instance
                ended = Filter(frozenset([Entity("instance", instance.instance_id)]), _names(_ENDS))
                if not await last_matching(self.reader, ended, 1, one.position, queued):
                    self.add([one])
                    for runner_id in instance.runner_ids:
                        await self._runner_around(Entity("runner", runner_id), one.position, queued, until)

    async def _asked(self, placed: Recorded, event: InstancePlaced) -> None:
        """The generation that an instance was placed for, unless somebody asked for the instance itself."""
        decision = await self._decision(placed)
        if placed.entry.cause_id is not None and decision[:1] == [placed]:
            return
        model_id = event.instance.model_id
        siblings = [one for one in decision if one.position < placed.position]
        asking = [
            one
            for one in siblings
            if isinstance(one.entry.event, GenerationQueued) and one.entry.event.model_id == model_id
        ]
        if not asking:
            # A node that came, or time, brought a waiting request forward: the first in the queue.
            self.add(siblings[:1])
            asking = await self._first_waiting(model_id, placed)
        self.add(asking[:1])

    async def _first_waiting(self, model_id: ModelId, placed: Recorded) -> list[Recorded]:
        rows, time = t.generations.c, placed.entry.recorded_at
        queued = rows.queued_at <= time
        not_given = or_(rows.dispatched_at.is_(None), rows.dispatched_at >= time)
        not_over = or_(rows.ended_at.is_(None), rows.ended_at >= time)
        query = select(rows.task_id).where(rows.model_id == model_id, queued, not_given, not_over)
        async with self.reader.connect() as connection:
            task_id = await connection.scalar(query.order_by(rows.queued_at).limit(1))
        if task_id is None:
            return []
        wanted = Filter(frozenset([Entity("generation", task_id)]), _names((GenerationQueued,)))
        return await last_matching(self.reader, wanted, 1, 0, placed.position)

    async def _downloads(self, event: InstancePlaced, placed: int) -> None:
        """Of the instance's model to its nodes, the last try of each."""
        model = Entity("model", event.instance.model_id)
        wanted = Filter(frozenset([model]), _names(causes.DOWNLOAD_EVENTS))
        tries = await last_matching(self.reader, wanted, STEPS_MOST, placed, self.upto)
        here = [one for one in tries if getattr(one.entry.event, "node_id", "") in event.instance.node_ids]
        begins = [one.position for one in here if isinstance(one.entry.event, DownloadStarted)]
        self.add([one for one in here if not begins or one.position >= begins[-1]])

    async def _ends_of_placed(self) -> None:
        placed = [one for one in self.found.values() if isinstance(one.entry.event, InstancePlaced)]
        if placed:
            instances: list[Entity] = []
            runners: list[Entity] = []
            for one in placed:
                if isinstance(one.entry.event, InstancePlaced):
                    instance = one.entry.event.instance
                    await self._asked(one, one.entry.event)
                    instances.append(Entity("instance", instance.instance_id))
                    runners += [Entity("runner", runner_id) for runner_id in instance.runner_ids]
            begin = min(one.position for one in placed)
            await self._last_of(instances, _ENDS, begin, self.upto)
            await self._last_of(runners, causes.RUNNER_EVENTS, begin, self.upto)

    async def _with(self, end: Recorded) -> None:
        """What ended something: the failures and losses in the same decision."""
        known = {causes.subject_of(one.entry.event) for one in self.found.values()} | self._node_entities()
        for one in await self._decision(end):
            if isinstance(one.entry.event, causes.UPSETS) and causes.subject_of(one.entry.event) in known:
                self.add([one])

    async def _decision(self, recorded: Recorded) -> list[Recorded]:
        """All events that had the same cause; without one, those of the same round of the master's own."""
        cause_id = recorded.entry.cause_id
        if cause_id is None:
            around = range(recorded.position - _NEIGHBOURS, recorded.position + _NEIGHBOURS + 1)
            return _run_of(await events_at(self.reader, around), recorded)
        if cause_id not in self.decisions:
            self.decisions[cause_id] = await self.reader.caused_by(cause_id)
        return self.decisions[cause_id]


_ENDS: _Types = (InstanceDeleted, InstanceFailed)


def _names(types: _Types) -> frozenset[str]:
    return frozenset(one.__name__ for one in types)


def _run_of(events: Sequence[Recorded], recorded: Recorded) -> list[Recorded]:
    """The events without a cause that lie around one without a gap."""
    own = {one.position: one for one in events if one.entry.cause_id is None}
    first = last = recorded.position
    while first - 1 in own:
        first -= 1
    while last + 1 in own:
        last += 1
    return [own[position] for position in range(first, last + 1) if position in own]
