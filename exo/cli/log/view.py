"""How `exo log` shows events and States to people."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table

from exo.domain.messages.events import Compacted, Event, Recorded
from exo.domain.state import State, names_of
from exo.log.derived import Problem
from exo.log.explain.entities import short
from exo.log.verify import Verification

_ENDED_SHOWN = 10


def local_time(seconds: float, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """A moment in ISO 8601, in the local time zone, to the second or finer."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec=timespec)


def line(recorded: Recorded) -> str:
    """One event on one line: position, time, type, and what it says."""
    entry = recorded.entry
    return f"{recorded.position:>7}  {local_time(entry.recorded_at)}  {entry.event.type:<22}  {_summary(entry.event)}"


def page(recorded: Recorded, siblings: list[Recorded]) -> str:
    """One event in full. `siblings` are the events that had the same cause."""
    entry = recorded.entry
    if isinstance(entry.event, Compacted):
        return _compacted(recorded.position, entry.recorded_at, entry.event)
    others = ", ".join(str(other.position) for other in siblings if other.position != recorded.position)
    cause = entry.cause_id or "none: the master's own doing"
    return "\n".join(
        [
            f"position  {recorded.position}",
            f"recorded  {local_time(entry.recorded_at)}",
            f"type      {entry.event.type}, version {entry.event.version}",
            f"source    {entry.source}",
            f"cause     {cause}",
            *([f"with      {others}, which had the same cause"] if others else []),
            entry.event.model_dump_json(indent=2, exclude={"type", "version"}),
        ]
    )


def _compacted(position: int, recorded_at: float, event: Compacted) -> str:
    return "\n".join(
        [
            f"position  {position}",
            f"recorded  {local_time(recorded_at)}",
            "type      compacted: `exo log compact` dropped what this event said",
            f"digest    {event.digest}, of the row that was there",
        ]
    )


def verdict(verification: Verification) -> str:
    """What a check found, in one line for each problem."""
    if not verification.problems:
        return f"{verification.checked} events, chain and State agree"
    found = [str(problem) for problem in verification.problems]
    return "\n".join([*found, f"{verification.checked} events, {len(found)} problems"])


def verdict_data(verification: Verification) -> dict[str, object]:
    """The same as plain data."""

    def plain(problem: Problem) -> dict[str, object]:
        return {"position": problem.position, "text": problem.text}

    return {
        "checked": verification.checked,
        "position": verification.position,
        "digest": verification.digest,
        "problems": [plain(problem) for problem in verification.problems],
    }


def state_tables(state: State) -> RenderableType:
    """A State as tables: nodes, instances, runners, generations."""
    when = f" at {local_time(state.time)}" if state.position else ""
    head = f"State after position {state.position}{when}, master {short(state.master or 'none')}, epoch {state.epoch}"
    tables = [_nodes(state), _instances(state), _runners(state), _generations(state), _ended(state)]
    return Group(head, *(table for table in tables if table.row_count))


def _summary(event: Event) -> str:
    return " ".join(f"{name}={value}" for name, value in _short(event.model_dump(mode="json")))


def _short(fields: dict[str, object]) -> Iterator[tuple[str, object]]:
    """What fits on a line: plain values, and of nested ones the name that they go by."""
    for name, value in fields.items():
        if name in {"type", "version"} or value in ("", None):
            continue
        if isinstance(value, dict):
            for inner in ("hostname", "instance_id", "completion_tokens"):
                if inner in value:
                    yield inner, value[inner]  # pyright: ignore[reportUnknownMemberType]  JSON
        elif isinstance(value, list):
            yield name, len(value)  # pyright: ignore[reportUnknownArgumentType]  JSON
        else:
            yield name, value


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _nodes(state: State) -> Table:
    table = _table("Nodes", "node", "host", "free memory", "engines", "models", "joined")
    names = names_of(state.nodes.values())
    for node_id, node in sorted(state.nodes.items()):
        free = f"{node.available_bytes / 1e9:.1f} of {node.facts.memory_bytes / 1e9:.1f} GB"
        engines, models = ", ".join(node.facts.engines), str(len(node.holdings))
        table.add_row(short(node_id), names[node_id], free, engines, models, local_time(node.joined_at))
    return table


def _instances(state: State) -> Table:
    table = _table("Instances", "instance", "model", "engine", "nodes", "context", "slots")
    for instance_id, one in sorted(state.instances.items()):
        nodes = ", ".join(short(node_id) for node_id in one.node_ids)
        table.add_row(short(instance_id), one.model_id, one.engine, nodes, str(one.context), str(one.slots))
    return table


def _runners(state: State) -> Table:
    table = _table("Runners", "runner", "instance", "node", "status", "since", "failures")
    for runner_id, one in sorted(state.runners.items()):
        since, failures = local_time(one.since), str(one.failures)
        table.add_row(short(runner_id), short(one.instance_id), short(one.node_id), one.status.type, since, failures)
    return table


def _generations(state: State) -> Table:
    table = _table("Generations, queued and running", "task", "model", "key", "instance", "queued")
    for one in sorted(state.generations.values(), key=lambda generation: generation.queued_position):
        table.add_row(
            short(one.task_id), one.model_id, one.key, short(one.instance_id or "queued"), local_time(one.queued_at)
        )
    return table


def _ended(state: State) -> Table:
    title = f"Generations, the last {_ENDED_SHOWN} that ended"
    table = _table(title, "task", "model", "key", "finish", "tokens in", "tokens out", "ended")
    for one in state.ended[-_ENDED_SHOWN:]:
        tokens = str(one.usage.prompt_tokens), str(one.usage.completion_tokens)
        table.add_row(short(one.task_id), one.model_id, one.key, one.finish_reason, *tokens, local_time(one.ended_at))
    return table
