"""`exo models add`, `search` and `forget`: models of the hub, for the whole cluster."""

from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Column, Table

from exo.cli.client import ask, event_of

WAIT = 10.0
"""Seconds for the decision, and for a node to say that it can get the model."""
HUB_PATIENCE = 90.0
"""Seconds that the hub may take besides."""


def add(model: Annotated[str, typer.Argument(help="Repository on the hub, as owner/name.")]) -> None:
    """Make a model of the hub known to every node, so that it is fetched when somebody asks for it."""
    answer = ask("POST", "/models/add", HUB_PATIENCE, params={"wait": WAIT}, json={"model_id": model})
    card = event_of("ModelAdded", answer)["card"]
    size = f"{card['weight_bytes'] / 1e9:.1f} GB"
    print(f"{card['model_id']} is known now: {card['family']}, {card['quantization']}, {size}, not fetched yet")


def search(
    words: Annotated[
        list[str] | None, typer.Argument(help="Parts of the name; none: whatever most people fetch.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 20,
) -> None:
    """Find models: those that the cluster knows, then those on the hub, most fetched first."""
    query = {"query": " ".join(words or ()), "limit": limit}
    answer = ask("GET", "/models/search", HUB_PATIENCE, params=query)
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a pipe has no edge to cut names at
    table = Table(Column("model", no_wrap=True), "status", "fetched in 30 days")
    for one in answer["models"]:
        fetched = "" if one["downloads"] is None else f"{one['downloads']:,}"
        table.add_row(one["id"], one["status"], fetched)
    console.print(table)
    if answer["hub_error"]:
        console.print(f"without the hub: {answer['hub_error']}", highlight=False, markup=False)


def forget(model: Annotated[str, typer.Argument(help="Model that was added, by its full id or short name.")]) -> None:
    """Take back that a model was added. What is on disks stays there."""
    answer = ask("DELETE", f"/models/custom/{quote(model)}", params={"wait": WAIT})
    print(f"{event_of('ModelForgotten', answer)['model_id']} is forgotten")
