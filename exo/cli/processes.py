"""The four processes of a node, as in the Procfile."""

from typing import Annotated

import typer

from exo.config import load_settings


def nats() -> None:
    """Run the NATS server that carries all messages of the cluster."""
    from exo.bus.server import run_server
    from exo.log_setup import setup_logging
    from exo.node.identity import node_id

    settings = load_settings()
    setup_logging(settings.log_level, settings.log_format)
    raise typer.Exit(run_server(settings.home, settings.nats_url, node_id(settings.home)))


def master() -> None:
    """Run a master: it keeps the event log, and decides while it leads."""
    from exo.master.main import run_master
    from exo.process import run_process

    settings = load_settings()
    run_process(run_master(settings), settings.log_level, settings.log_format)


def worker() -> None:
    """Run the worker: it looks at this machine and runs the models that are placed on it."""
    from exo.process import run_process
    from exo.worker.main import run_worker

    settings = load_settings()
    run_process(run_worker(settings), settings.log_level, settings.log_format)


def api(
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen at an address that others reach also without any key.")
    ] = False,
) -> None:
    """Run the HTTP API that OpenAI clients talk to."""
    from exo.api.main import run_api
    from exo.process import run_process

    settings = load_settings(api_insecure=True) if insecure else load_settings()
    run_process(run_api(settings), settings.log_level, settings.log_format)
