"""`exo status`: the cluster at a glance."""

import json
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table

from exo.config import load_settings
from exo.domain.ids import InstanceId
from exo.domain.state import Node, State, generations_on, host_of, names_of
from exo.errors import ExoError


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print State as JSON, for programs.")] = False,
) -> None:
    """Show the cluster: who leads, the nodes, which models are loaded, and what runs."""
    from exo.cli.client import api_client, refused, unreachable

    with api_client(load_settings()) as client:
        try:
            response = client.get("/state")
            ready = client.get("/ready").json()
        except httpx.TransportError as error:
            unreachable(client, error)
    if response.is_error:
        refused(response)
    if as_json:
        print(response.text)
        return
    show(State.model_validate_json(response.content), ready, Console())


def show(state: State, ready: object, console: Console) -> None:
    """Print State for a person."""
    console.print(f"position {state.position}, epoch {state.epoch}, led by {state.master or 'nobody'}")
    console.print(_nodes(state))
    for line in _gpu_problems(state):
        console.print(line)
    console.print(_instances(state))
    waiting = sum(generation.instance_id is None for generation in state.generations.values())
    console.print(
        f"{len(state.generations) - waiting} generations running, {waiting} waiting, {len(state.ended)} ended"
    )
    match ready:
        case {"ready": True}:
            console.print("ready: yes")
        case {"reasons": list() as reasons}:  # pyright: ignore[reportUnknownVariableType]  JSON of the API
            console.print(f"ready: no, {'; '.join(map(str, reasons))}")  # pyright: ignore[reportUnknownArgumentType]
        case _:
            raise ExoError(f"the API's /ready answered {json.dumps(ready)}")


def _nodes(state: State) -> Table:
    table = Table("node", "machine", "memory free", "GPUs", "engines", title="Nodes", title_justify="left")
    names = names_of(state.nodes.values())
    for node_id, node in sorted(state.nodes.items()):
        table.add_row(*_node_row(node, names[node_id]))
    return table


def _gpu_problems(state: State) -> list[str]:
    """Of each node with a GPU that no engine uses, why, and what to do."""
    names = names_of(state.nodes.values())
    nodes = sorted(state.nodes.items())
    return [
        f"{names[node_id]} does not use its GPU: {node.facts.gpu_problem}"
        for node_id, node in nodes
        if node.facts.gpu_problem
    ]


def _machine(node: Node, name: str) -> str:
    """`spark, NVIDIA DGX Spark (desktop), Cortex-X925 and Cortex-A725, 20 cores`."""
    machine = node.facts.machine
    kind = "" if machine.kind == "unknown" else machine.kind
    what = f"{machine.model} ({kind})" if machine.model and kind else machine.model or kind
    return ", ".join(filter(None, (name, what, node.facts.chip, f"{node.facts.cores} cores")))


def _node_row(node: Node, name: str) -> tuple[str, ...]:
    facts = node.facts
    return (
        node.node_id[:8],
        _machine(node, name),
        f"{node.available_bytes / 1e9:.1f} of {facts.memory_bytes / 1e9:.1f} GB",
        ", ".join(gpu.name for gpu in facts.gpus) or "none",
        ", ".join(facts.engines) or "none",
    )


def _instances(state: State) -> Table:
    columns = ("instance", "model", "engine", "runners", "running", *(["prefill"] if state.prefill_links else []))
    table = Table(*columns, title="Instances", title_justify="left")
    for instance_id, instance in sorted(state.instances.items()):
        runners = [state.runners[runner_id] for runner_id in instance.runner_ids]
        table.add_row(
            instance_id[:8],
            instance.model_id,
            instance.engine,
            ", ".join(f"{host_of(state, runner.node_id)} {runner.status.type}" for runner in runners),
            f"{len(generations_on(state, instance_id))} of {instance.slots}",
            *([_prefill(state, instance_id)] if state.prefill_links else []),
        )
    return table


def _prefill(state: State, instance_id: InstanceId) -> str:
    """Who computes an instance's prompts, or for whom it does."""
    link = state.prefill_links.get(instance_id)
    if link is not None:
        return f"by {link.prefill_id[:8]}"
    served = [decode_id[:8] for decode_id, one in sorted(state.prefill_links.items()) if one.prefill_id == instance_id]
    return f"for {', '.join(served)}" if served else "by itself"
