"""`exo models`: what this node has and can get, and what the cluster knows."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as ProgressBar
from rich.table import Column, Table

from exo.cli.adding import add, forget, search
from exo.config import Settings, load_settings
from exo.domain.ids import InstanceId, ModelId, NodeId
from exo.domain.machine_names import SHORT_ID
from exo.domain.node import DamagedModel, Holding
from exo.domain.state import State, instances_of

app = typer.Typer(
    name="models", add_completion=False, help="List, find, import and fetch models.", no_args_is_help=True
)
app.command("add")(add)
app.command("search")(search)
app.command("forget")(forget)


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print model cards, and what is damaged, as JSON.")] = False,
) -> None:
    """List the models of this node: on disk, or to be had when somebody asks for them.

    A node that runs is asked; without one, the disk is looked at by the settings of this shell.
    """
    settings = load_settings()
    holdings, damaged = _reported(settings) or _found(settings)
    if as_json:
        rows = [holding.model_dump(mode="json") for holding in holdings]
        rows += [{**one.model_dump(mode="json"), "status": "damaged"} for one in damaged]
        print(json.dumps(rows))
        return
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a pipe has no edge to cut names at
    table = Table(Column("model", no_wrap=True), "family", "size", "context", "weights", "status")
    for holding in sorted(holdings, key=lambda holding: holding.status != "ready"):
        card = holding.card
        size = f"{card.weight_bytes / 1e9:.1f} GB"
        table.add_row(card.model_id, card.family, size, str(card.context), card.quantization, holding.status)
    for one in damaged:
        table.add_row(one.model_id, "", "", "", "", "damaged")
    console.print(table)
    for one in damaged:
        console.print(f"{one.model_id} is damaged: {one.reason}", highlight=False)


@app.command("import")
def import_model(
    file: Annotated[Path, typer.Argument(help="A GGUF file of the llama family.")],
    name: Annotated[str | None, typer.Option(help="Id of the model here; without it, the file's name.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 (right for a CPU), float16 or bfloat16.")] = "float32",
) -> None:
    """Turn a GGUF file into a model of this node."""
    from exo.errors import Rejected
    from exo.models.gguf.conversion import import_gguf
    from exo.models.names import folder_name
    from exo.models.store import IMPORT_DTYPES

    if dtype not in IMPORT_DTYPES:
        raise Rejected(f"--dtype {dtype}: it must be one of {', '.join(IMPORT_DTYPES)}")
    model_id = ModelId(name or file.stem)
    destination = load_settings().models_dir / folder_name(model_id)
    with ProgressBar() as bar:
        card = import_gguf(file, destination, IMPORT_DTYPES[dtype], _shown(bar), model_id=model_id)
    print(f"{card.model_id} is in {destination}; a running node sees it within seconds")


@app.command("pull")
def pull(name: Annotated[str, typer.Argument(help="Model, by its full id or its short name.")]) -> None:
    """Bring a model onto this node's disk now, instead of when it is first asked for."""
    from exo.errors import Rejected
    from exo.models.names import resolve
    from exo.models.store import Store

    settings = load_settings()
    store = Store(settings.models_dir, settings.model_folders, settings.offline)
    added = _state(settings)[0].added_models
    holdings, _ = store.look(added.values())
    card = resolve(name, [holding.card for holding in holdings])
    if card is None:
        raise Rejected(f"the model '{name}' is not known here: `exo models list` shows those that are")
    with ProgressBar() as bar:
        folder = store.prepare(card, _shown(bar))
    print(f"{card.model_id} is in {folder}")


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="Model, by its full id or its short name.")],
    force: Annotated[bool, typer.Option("--force", help="Also where it is loaded from there.")] = False,
) -> None:
    """Delete a model that exo prepared or imported from this node's disk."""
    from exo.errors import Rejected
    from exo.models.names import resolve_id
    from exo.models.store import Store

    settings = load_settings()
    store = Store(settings.models_dir, settings.model_folders, settings.offline)
    holdings, damaged = store.look()
    ready = [holding.card.model_id for holding in holdings if holding.status == "ready"]
    model_id = resolve_id(name, [*ready, *(one.model_id for one in damaged)])
    if model_id is None:
        raise Rejected(f"the model '{name}' is not on this node's disk: `exo models list` shows those that are")
    loaded = _loaded(settings, model_id)
    if loaded and not force:
        ways = ", ".join(f"`exo unload {instance_id[:SHORT_ID]}`" for instance_id in loaded)
        raise Rejected(f"{model_id} is loaded from there: {ways} takes it away first, or use --force")
    store.delete(model_id)
    print(f"{model_id} is gone from the disk")


def _reported(settings: Settings) -> tuple[Sequence[Holding], Sequence[DamagedModel]] | None:
    """What this home's node has said of its models, by its own settings; None where no API answers that knows it."""
    state, own_id = _state(settings)
    node = state.nodes.get(own_id)
    return None if node is None else ([holding for _, holding in sorted(node.holdings.items())], node.damaged)


def _loaded(settings: Settings, model_id: ModelId) -> list[InstanceId]:
    """The instances of a model that this home's node has a part of, as far as an API answers."""
    state, own_id = _state(settings)
    return [one.instance_id for one in instances_of(state, model_id) if own_id in one.node_ids]


def _state(settings: Settings) -> tuple[State, NodeId]:
    """What the API of this home's node says, and the node's id; an empty State where there is no such answer."""
    import httpx

    from exo.cli.client import api_client
    from exo.node.identity import FILE, node_id

    if not (settings.home / FILE).is_file():
        return State(), NodeId("")
    with api_client(settings, timeout=5.0) as client:
        try:
            response = client.get("/state")
        except httpx.TransportError:
            return State(), NodeId("")
    state = State() if response.is_error else State.model_validate_json(response.content)
    return state, node_id(settings.home)


def _found(settings: Settings) -> tuple[Sequence[Holding], Sequence[DamagedModel]]:
    from exo.models.store import Store

    print(f"no node with the home {settings.home} answers: listed by the settings of this shell", file=sys.stderr)
    return Store(settings.models_dir, settings.model_folders, settings.offline).look()


def _shown(bar: ProgressBar):
    from exo.models.progress import Progress

    task = bar.add_task("starting", total=None)

    def show(progress: Progress) -> None:
        total = progress.total_bytes or None
        bar.update(task, description=progress.stage, completed=progress.done_bytes, total=total)

    return show
