"""What events are about: nodes, instances, runners, generations, models, keys, and who sent what."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from exo.domain.ids import ModelId
from exo.domain.messages.events import (
    CommandRejected,
    Event,
    GenerationFinished,
    InstancePlaced,
    ModelAdded,
    NodeChanged,
    NodeJoined,
    Recorded,
)
from exo.domain.model_card import short_name
from exo.errors import Rejected

Kind = Literal["node", "instance", "runner", "generation", "model", "key", "process", "api", "command", "sender"]
_FIELDS: tuple[tuple[str, Kind], ...] = (
    ("node_id", "node"),
    ("instance_id", "instance"),
    ("prefill_id", "instance"),
    ("decode_id", "instance"),
    ("runner_id", "runner"),
    ("task_id", "generation"),
    ("model_id", "model"),
    ("key", "key"),
    ("process", "process"),
    ("reply_to", "api"),
)
"""The fields of events that are ids."""
_SENDERS = {"node", "runner", "api", "sender"}
_COMPLETION = "chatcmpl-"
"""Before a generation's id in what the API tells its clients."""
_LISTED = 12


class Entity(NamedTuple):
    """One thing that events speak of."""

    kind: Kind
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def mentions(recorded: Recorded) -> dict[Entity, str]:
    """What an event names, each with the shorter name that people have for it: a host, a model's last part; or ""."""
    entry = recorded.entry
    named = {entity: "" for entity in _fields(entry.event)}
    named |= _inside(entry.event)
    for entity in named:
        if entity.kind == "model":
            named[entity] = short_name(ModelId(entity.id))
    ids = {entity.id for entity in named}
    if entry.source and entry.source not in ids:
        named[Entity("sender", entry.source)] = ""
    if entry.cause_id is not None:
        named[Entity("command", entry.cause_id)] = ""
    return named


def matches(recorded: Recorded, entity: Entity) -> bool:
    """Whether an event names an entity, be it as the sender of what led to it, or in the reason of a refusal."""
    entry = recorded.entry
    if entity.kind in _SENDERS and entry.source == entity.id:
        return True
    if entity.kind == "command":
        return entry.cause_id == entity.id
    if isinstance(entry.event, CommandRejected):
        return f"'{entity.id}'" in entry.event.reason or f" {entity.id} " in f"{entry.event.reason} "
    return entity in mentions(recorded)


class Search:
    """The entity that a text stands for, looked for in one event after the other."""

    def __init__(self, text: str) -> None:
        """`text`: an id, the beginning of one, a host, a model's short name, or a completion's id."""
        self.text = text.removeprefix(_COMPLETION)
        self._exact: set[Entity] = set()
        self._called: set[Entity] = set()
        self._beginning: set[Entity] = set()

    def add(self, recorded: Recorded) -> None:
        """One more event."""
        wanted = self.text
        for entity, name in mentions(recorded).items():
            if entity.id == wanted:
                self._exact.add(entity)
            elif name and name.lower() == wanted.lower():
                self._called.add(entity)
            elif entity.id.startswith(wanted) or (name and name.lower().startswith(wanted.lower())):
                self._beginning.add(entity)

    @property
    def is_certain(self) -> bool:
        """Whether no later event can change the result."""
        return any(entity.kind != "sender" for entity in self._exact)

    @property
    def has_found(self) -> bool:
        """Whether there is anything that the text may stand for."""
        return bool(self._exact or self._called or self._beginning)

    def result(self) -> Entity:
        """The one entity. Raises Rejected where there is none, or more than one, which it lists."""
        found = _one_each(self._exact) or _one_each(self._called) or _one_each(self._beginning)
        if not found:
            raise Rejected(
                f"no event of this log names '{self.text}'; `exo log tail` shows the ids that there are",
                code="not_found",
                param="entity",
            )
        if len(found) > 1:
            listed = ", ".join(str(entity) for entity in found[:_LISTED])
            more = f", and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            raise Rejected(f"'{self.text}' may be any of: {listed}{more}; write more of it", param="entity")
        return found[0]


def short(identifier: str) -> str:
    """An id as far as people need it: the first eight of 32 hexadecimal digits."""
    is_random = len(identifier) == 32 and all(digit in "0123456789abcdef" for digit in identifier)
    return identifier[:8] if is_random else identifier


def _one_each(found: Iterable[Entity]) -> list[Entity]:
    """Without senders that are something better known as well."""
    known = {entity.id for entity in found if entity.kind != "sender"}
    return sorted(entity for entity in found if entity.kind != "sender" or entity.id not in known)


def _fields(event: Event) -> Iterator[Entity]:
    for field, kind in _FIELDS:
        value = getattr(event, field, None)
        if value:
            yield Entity(kind, value)


def _inside(event: Event) -> dict[Entity, str]:
    match event:
        case NodeJoined() | NodeChanged():
            models = {Entity("model", holding.card.model_id): "" for holding in event.holdings}
            return {**models, Entity("node", event.node_id): event.facts.hostname}
        case ModelAdded():
            return {Entity("model", event.card.model_id): ""}
        case InstancePlaced():
            instance = event.instance
            ids = [Entity("instance", instance.instance_id), Entity("model", instance.model_id)]
            for shard in instance.shards:
                ids += [Entity("node", shard.node_id), Entity("runner", shard.runner_id)]
            return dict.fromkeys(ids, "")
        case GenerationFinished() if event.prefill is not None:
            return {Entity("instance", event.prefill.instance_id): ""}
        case _:
            return {}
