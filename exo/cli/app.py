"""`exo`: the processes of a node, and what a person asks of a cluster."""

import sys

import typer

from exo.cli import chat, log, models, processes, status
from exo.errors import ExoError, Fatal

app = typer.Typer(
    name="exo",
    help="One AI cluster from the machines you already own. `honcho start` runs a node: nats, master, worker and api.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
processes.add_to(app)
status.add_to(app)
chat.add_to(app)
app.add_typer(models.app, name="models")
app.add_typer(log.app, name="log")


def main() -> None:
    """Run the command line. What exo refuses is one line on standard error and exit code 1."""
    try:
        app()
    except ExoError as error:
        print(f"exo: {error}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, Fatal) else 1)
