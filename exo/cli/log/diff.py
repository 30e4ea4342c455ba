"""`exo log diff`: what changed between two moments, for people and for programs."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, cast

import typer

from exo.cli.log.options import MOMENT, HomeOption, JsonOption, log_file, moment, opened, progress, run
from exo.cli.log.view import local_time
from exo.domain.ids import NodeId
from exo.domain.state import ENDED_KEPT
from exo.log.explain.diff import Diff, GroupDiff, Plain, diff_between
from exo.log.moments import Moment, position_of

_TIMES = {"since", "at"}
_VALUE_MOST = 100
"""Characters of a value that are shown."""


def diff_log(
    first: Annotated[str, typer.Argument(metavar="A", help=f"{MOMENT}.")],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help=f"{MOMENT}.  [default: now]", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Print what changed in the cluster between two moments. Where A is after B, the way back."""
    with progress(hidden=as_json) as reached:
        found = run(_diff(log_file(home), moment(first, "A"), moment(second, "B"), reached))
    typer.echo(json.dumps(found.plain()) if as_json else "\n".join(lines(found)))


async def _diff(
    path: Path, first: Moment | None, second: Moment | None, on_progress: Callable[[int, int], None]
) -> Diff:
    async with opened(path) as store:
        before, after = await position_of(store, first), await position_of(store, second)
        return await diff_between(store, before, after, on_progress)


def lines(found: Diff) -> Iterator[str]:
    """A difference for people: a head, then each part of State that changed."""
    (before, then), (after, now) = found.before, found.after
    way = "back to" if found.is_backwards else "to"
    yield f"From position {before}{_when(then)} {way} position {after}{_when(now)}, {abs(after - before)} events"
    if found.events:
        yield "in between: " + ", ".join(f"{count} {name}" for name, count in found.events.items())
    if not found.cluster and not found.groups:
        yield "State is the same"
    if found.cluster:
        yield ""
        yield "cluster"
        yield from _fields(found.cluster, "  ")
    for name, group in found.groups.items():
        yield ""
        yield name
        yield from _group(name, group, found.names)


def _group(name: str, group: GroupDiff, names: Mapping[NodeId, str]) -> Iterator[str]:
    for identifier, value in group.added.items():
        yield f"  + {identifier}  {_described(name, value, names)}"
    if name == "ended" and group.removed and group.added:
        yield f"  - {len(group.removed)} older: State keeps the last {ENDED_KEPT}"
    else:
        for identifier, value in group.removed.items():
            yield f"  - {identifier}  {_described(name, value, names)}"
    for identifier, changes in group.changed.items():
        yield f"  ~ {identifier}"
        yield from _fields(changes, "      ")


def _fields(changes: dict[str, tuple[object, object]], indent: str) -> Iterator[str]:
    width = max(len(path) for path in changes)
    for path, (old, new) in changes.items():
        yield f"{indent}{path:<{width}}  {_value(path, old)} -> {_value(path, new)}"


def _described(name: str, value: Plain, names: Mapping[NodeId, str]) -> str:
    """What there is to know of something new or gone, on one line."""
    match name:
        case "nodes":
            facts, host = cast("Plain", value["facts"]), names[NodeId(str(value["node_id"]))]
            return f"{host}, {facts['cores']} cores, {_gigabytes(facts['memory_bytes'])} memory"
        case "instances":
            shards = cast("list[Plain]", value["shards"])
            nodes = ", ".join(str(shard["node_id"]) for shard in shards)
            model = cast("Plain", value["card"])["model_id"]
            return f"{model} in {value['engine']} on {nodes}, context {value['context']}, {value['slots']} slots"
        case "prefill_links":
            return f"instance {value['prefill_id']} prefills for it"
        case "runners":
            status = cast("Plain", value["status"])["type"]
            return f"{status}, of instance {value['instance_id']} on {value['node_id']}"
        case "generations":
            where = f"on instance {value['instance_id']}" if value["instance_id"] else "queued"
            return f"{value['model_id']} for {value['key']}, {where}"
        case "ended":
            usage, error = cast("Plain", value["usage"]), f": {value['error']}" if value["error"] else ""
            tokens = f"{usage['prompt_tokens']} tokens in, {usage['completion_tokens']} out"
            return f"{value['model_id']} for {value['key']}, {tokens}, {value['finish_reason']}{error}"
        case "keys":
            return f"for {' and '.join(cast('list[str]', value['scopes']))}"
        case "added_models":
            return f"{value['family']}, {value['quantization']}, {_gigabytes(value['weight_bytes'])}"
        case "downloads":
            return f"{value['model_id']} to {value['node_id']}, {value['status']} {value['reason']}".rstrip()
        case _:
            return str(value["reason"])


def _value(path: str, value: object) -> str:
    name = path.rsplit(".", 1)[-1]
    if value is None:
        return "none"
    if isinstance(value, float) and value and (name.endswith("_at") or name in _TIMES):
        return local_time(value, "milliseconds")
    if isinstance(value, int) and name.endswith("_bytes"):
        return _gigabytes(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) or value == "" else str(value)
    return text if len(text) <= _VALUE_MOST else f"{text[:_VALUE_MOST]}…"


def _gigabytes(count: object) -> str:
    return f"{cast('int', count) / 1e9:.2f} GB"


def _when(time: float) -> str:
    return f" ({local_time(time)})" if time else ""
