"""`exo place` and `exo unload`: a model loaded where one says, or shown where it could go, and taken away again."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Column, Table

from exo.cli.client import ask, event_of
from exo.domain.instance import Instance
from exo.domain.shard import Backend, Sharding

WAIT = 10.0
"""Seconds for the decision; loading takes longer."""


def place(
    model: Annotated[str, typer.Argument(help="Model, by its full id or its short name.")],
    nodes: Annotated[list[str] | None, typer.Option("--node", help="A node that must be among those chosen.")] = None,
    min_nodes: Annotated[int, typer.Option(min=1, help="Spread it over so many nodes at least.")] = 1,
    sharding: Annotated[
        Sharding | None, typer.Option(help="How it is cut over several.  [default: pipeline]", show_default=False)
    ] = None,
    backend: Annotated[
        Backend | None, typer.Option(help="How they talk: TCP, or RDMA.  [default: ring]", show_default=False)
    ] = None,
    engine: Annotated[Literal["mlx", "vllm"] | None, typer.Option(help="What runs it.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens to reserve memory for.")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Generations side by side.")] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show where it could go, and why not.")] = False,
    wait: Annotated[bool, typer.Option(help="Until it is ready.")] = True,
) -> None:
    """Load one more instance of a model, on the best nodes for it or on those that are named.

    Shows how far it is, until it is ready or has failed. Ctrl-C leaves it loading.
    """
    wanted = _given(model=model, node_ids=nodes, sharding=sharding, backend=backend, engine=engine, context=context)
    wanted["min_nodes"] = min_nodes
    if preview:
        _show(ask("GET", "/instance/previews", params=wanted), Console())
        return
    body = wanted | _given(slots=slots)
    event = event_of("InstancePlaced", ask("POST", "/place_instance", params={"wait": WAIT}, json=body))
    instance = Instance.model_validate(event["instance"])
    print(f"{instance.instance_id}: {event['reason']}", flush=True)
    if wait:
        from exo.cli.loading import wait_ready

        wait_ready(instance, Console())


def unload(
    instance: Annotated[str, typer.Argument(help="Instance, by its id or the beginning of it: `exo status` shows it.")],
) -> None:
    """Take an instance of a model away, and cancel what runs on it."""
    answer = ask("DELETE", f"/instance/{quote(instance, safe='')}", params={"wait": WAIT})
    print(f"{event_of('InstanceDeleted', answer)['instance_id']} is unloaded")


def _given(**options: object) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _show(answer: Mapping[str, Any], console: Console) -> None:
    if not console.is_terminal:
        console.width = 200  # a pipe has no edge to cut reasons at
    where = Column("where, or why not", overflow="fold")
    table = Table("engine", "sharding", "backend", "nodes", Column("tokens/s", justify="right"), where)
    for one in answer["previews"]:
        shards = [f"{shard['name']} {shard['needed_bytes'] / 1e9:.2f} GB" for shard in one["shards"]]
        place = ", ".join(shards) if one["offered"] else one["reason"]
        speed = one["tokens_per_second"]
        measured = "" if speed is None else f"{speed:.1f}"
        table.add_row(one["engine"], one["sharding"], one["backend"], str(one["nodes"]), measured, place)
    console.print(table)
