"""What changed in State between two moments."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from pydantic import BaseModel
from sqlalchemy import and_, func, select
from typing_extensions import TypedDict

from exo.domain.ids import NodeId
from exo.domain.state import State, names_of
from exo.log import tables as t
from exo.log.reading import LogReader
from exo.log.replay import load_state

Plain = dict[str, object]
"""Something of State as plain data."""

GROUPS = (
    "nodes",
    "instances",
    "runners",
    "downloads",
    "generations",
    "ended",
    "failures",
    "keys",
    "added_models",
    "prefill_links",
)
"""The parts of State that hold many things, each by its id."""


class GroupTold(TypedDict):
    """What changed in one part of State, by id; of each changed value what it was, and what it is."""

    added: dict[str, Plain]
    removed: dict[str, Plain]
    changed: dict[str, dict[str, tuple[object, object]]]


class MomentTold(TypedDict):
    """A position of the log, and its time, seconds since the epoch."""

    position: int
    time: float


DiffTold = TypedDict(
    "DiffTold",
    {
        "from": MomentTold,
        "to": MomentTold,
        "backwards": bool,
        "events": dict[str, int],
        "cluster": dict[str, tuple[object, object]],
        "nodes": GroupTold,
        "instances": GroupTold,
        "runners": GroupTold,
        "downloads": GroupTold,
        "generations": GroupTold,
        "ended": GroupTold,
        "failures": GroupTold,
        "keys": GroupTold,
        "added_models": GroupTold,
        "prefill_links": GroupTold,
    },
)
"""A Diff as plain data."""


@dataclass(frozen=True, slots=True)
class GroupDiff:
    """What changed in one part of State, by id."""

    added: dict[str, Plain] = field(default_factory=dict[str, Plain])
    removed: dict[str, Plain] = field(default_factory=dict[str, Plain])
    changed: dict[str, dict[str, tuple[object, object]]] = field(
        default_factory=dict[str, dict[str, tuple[object, object]]]
    )
    """Each changed value's path, such as `status.type`, with what it was and what it is; None: nothing."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class Diff:
    """What leads from one State to another, which may be the earlier one."""

    before: tuple[int, float]
    """Position and time, seconds since the epoch."""
    after: tuple[int, float]
    cluster: dict[str, tuple[object, object]]
    """The master and its epoch, where they changed."""
    groups: dict[str, GroupDiff]
    """By the names of GROUPS, without those that did not change."""
    names: Mapping[NodeId, str] = field(default_factory=dict[NodeId, str])
    """Of the machines of both, by node id."""
    events: dict[str, int] = field(default_factory=dict[str, int])
    """How many of each type lie between: what came and went again is in no State."""

    @property
    def is_backwards(self) -> bool:
        """Whether it leads into the past: what was added then shows as removed."""
        return self.after[0] < self.before[0]

    def plain(self) -> DiffTold:
        """The same as plain data, for JSON."""
        told = {name: _plain_group(self.groups.get(name, GroupDiff())) for name in GROUPS}
        return {
            "from": {"position": self.before[0], "time": self.before[1]},
            "to": {"position": self.after[0], "time": self.after[1]},
            "backwards": self.is_backwards,
            "events": self.events,
            "cluster": self.cluster,
            "nodes": told["nodes"],
            "instances": told["instances"],
            "runners": told["runners"],
            "downloads": told["downloads"],
            "generations": told["generations"],
            "ended": told["ended"],
            "failures": told["failures"],
            "keys": told["keys"],
            "added_models": told["added_models"],
            "prefill_links": told["prefill_links"],
        }


def diff(before: State, after: State) -> Diff:
    """What is different in `after`. Pure."""
    cluster = {
        name: (getattr(before, name), getattr(after, name))
        for name in ("master", "epoch")
        if getattr(before, name) != getattr(after, name)
    }
    groups = {name: _group(_members(before, name), _members(after, name)) for name in GROUPS}
    return Diff(
        before=(before.position, before.time),
        after=(after.position, after.time),
        cluster=cluster,
        groups={name: group for name, group in groups.items() if group},
        names=names_of([*before.nodes.values(), *after.nodes.values()]),
    )


async def diff_between(
    reader: LogReader, before: int, after: int, on_progress: Callable[[int, int], None] = lambda _position, _end: None
) -> Diff:
    """What changed between two positions of a log.

    `on_progress` gets the position reached and the last one. Raises Fatal where an event cannot be read.
    """
    earlier, later = min(before, after), max(before, after)
    first = await load_state(reader, earlier, on_progress=lambda position, _end: on_progress(position, later))
    second = await load_state(reader, later, since=first, on_progress=on_progress)
    found = diff(first, second) if before <= after else diff(second, first)
    return replace(found, events=await _types(reader, earlier, later))


async def _types(reader: LogReader, after: int, upto: int) -> dict[str, int]:
    events = t.events.c
    between = and_(events.position > after, events.position <= upto)
    query = select(events.type, func.count()).where(between).group_by(events.type).order_by(func.count().desc())
    async with reader.connect() as connection:
        return {row[0]: row[1] for row in await connection.execute(query)}


def _members(state: State, name: str) -> Mapping[str, BaseModel]:
    if name == "ended":
        return {one.task_id: one for one in state.ended}
    return cast("Mapping[str, BaseModel]", getattr(state, name))


def _group(before: Mapping[str, BaseModel], after: Mapping[str, BaseModel]) -> GroupDiff:
    group = GroupDiff()
    for identifier in sorted({*before, *after}):
        old, new = before.get(identifier), after.get(identifier)
        if old is new or old == new:
            continue
        if old is None and new is not None:
            group.added[identifier] = new.model_dump(mode="json")
        elif new is None and old is not None:
            group.removed[identifier] = old.model_dump(mode="json")
        elif old is not None and new is not None:
            group.changed[identifier] = _changes(old.model_dump(mode="json"), new.model_dump(mode="json"))
    return group


def _changes(old: Plain, new: Plain) -> dict[str, tuple[object, object]]:
    was, now = dict(leaves(old)), dict(leaves(new))
    filled = _branches(was) | _branches(now)  # an empty list of one that has something in the other is no loss
    paths = [path for path in (was | now) if path not in filled]
    return {path: (was.get(path), now.get(path)) for path in paths if was.get(path) != now.get(path)}


def _branches(paths: Iterable[str]) -> set[str]:
    """What has something inside, by its path."""
    return {path[:end] for path in paths for end, letter in enumerate(path) if letter == "."}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every plain value inside, by its path of keys and indexes."""
    if isinstance(value, dict) and value:
        for key, inner in cast("Plain", value).items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(cast("list[object]", value)):
            yield from leaves(inner, f"{path}.{index}")
    else:
        yield path, value


def _plain_group(group: GroupDiff) -> GroupTold:
    return {"added": group.added, "removed": group.removed, "changed": group.changed}
