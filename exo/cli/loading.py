"""How far a model is that was placed, until it is ready or has failed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import typer
from rich.console import Console

from exo.cli.client import api_client, refused, unreachable
from exo.config import load_settings
from exo.domain.instance import Instance
from exo.domain.runner_status import Failed, Waiting
from exo.domain.state import Runner, State, download_key, host_of
from exo.errors import ExoError

NOT_FOUND = 404
LOOK_PAUSE = 0.5
"""Seconds between two looks."""
INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, as a shell has it."""


def wait_ready(instance: Instance, console: Console) -> None:
    """Show how far an instance is until it is ready. Raises ExoError with the reason where it is given up, and Exit
    where the person does not want to wait any more."""
    began = time.monotonic()
    try:
        with console.status("") as shown:
            for text in _looks(instance):
                if console.is_terminal:
                    shown.update(text)
                else:
                    print(text, flush=True)
    except KeyboardInterrupt:
        print("it goes on loading: `exo status` shows how far it is")
        raise typer.Exit(INTERRUPTED) from None
    print(f"ready after {time.monotonic() - began:.0f} s")


def _looks(instance: Instance) -> Iterator[str]:
    """What the instance is at, whenever that is something else, until it is ready. Raises ExoError where it is gone."""
    before = ""
    with api_client(load_settings()) as client:
        while True:
            state = State.model_validate(_asked(client, "/state"))
            if instance.instance_id not in state.instances:
                raise ExoError(why_gone(state, instance))
            answer = _asked(client, f"/instance/{instance.instance_id}")
            if answer.get("ready"):
                return
            text = progress(state, instance, answer.get("runners", ()))
            if text and text != before:
                yield text
            before = text
            time.sleep(LOOK_PAUSE)


def progress(state: State, instance: Instance, shown: Sequence[Mapping[str, Any]]) -> str:
    """What each of its runners is at: `studio: loading, 12 of 30 layers`. `shown`: they as the API shows them."""
    layers = {one["runner_id"]: (one["loaded_layers"], one["total_layers"]) for one in shown if "loaded_layers" in one}
    found = [state.runners[runner_id] for runner_id in instance.runner_ids if runner_id in state.runners]
    return "; ".join(_progress(state, runner, instance, layers.get(runner.runner_id)) for runner in found)


def why_gone(state: State, instance: Instance) -> str:
    """Why an instance is no more."""
    failure = state.failures.get(instance.model_id)
    if failure is None:
        return f"{instance.model_id} was unloaded before it was ready"
    return f"{instance.model_id} cannot be loaded: {failure.reason}"


def _progress(state: State, runner: Runner, instance: Instance, layers: tuple[int, int] | None) -> str:
    name = host_of(state, runner.node_id)
    download = state.downloads.get(download_key(runner.node_id, instance.model_id))
    match runner.status:
        case Waiting() if download is not None and download.status == "running":
            return f"{name}: the model is being brought to its disk"
        case Failed(reason=reason):
            return f"{name}: failed, to be started again: {reason}"
        case status:
            return f"{name}: {status.type}" + (f", {layers[0]} of {layers[1]} layers" if layers else "")


def _asked(client: httpx.Client, path: str) -> Mapping[str, Any]:
    """An answer, empty where what is asked for is gone. Raises ExoError where there is none."""
    try:
        response = client.get(path)
    except httpx.TransportError as error:
        unreachable(client, error)
    if response.status_code == NOT_FOUND:
        return {}
    if response.is_error:
        refused(response)
    return response.json()
