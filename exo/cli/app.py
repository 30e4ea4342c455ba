"""`exo`: the processes of a node, and what a person asks of a cluster."""

import sys
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from exo import __version__
from exo.errors import ExoError, Fatal, without_prefix

COMMANDS = MappingProxyType(
    {
        "nats": "exo.cli.processes:nats",
        "master": "exo.cli.processes:master",
        "worker": "exo.cli.processes:worker",
        "api": "exo.cli.processes:api",
        "status": "exo.cli.status:status",
        "place": "exo.cli.place:place",
        "unload": "exo.cli.place:unload",
        "link": "exo.cli.link:link",
        "unlink": "exo.cli.link:unlink",
        "chat": "exo.cli.chat:chat",
        "models": "exo.cli.models:app",
        "keys": "exo.cli.keys:app",
        "log": "exo.cli.log.app:app",
        "usage": "exo.cli.usage:usage",
    }
)
"""Where each command is: a function, or the app of a group."""


class _Lazy(TyperGroup):
    """Imports a command when it is used: four processes start at once, and none needs what the others import."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def invoke(self, ctx: Any) -> object:
        """As typer does it, without the words that pydantic puts before those of others."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = without_prefix(error.message)
            raise

    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | TyperGroup | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            return cast("TyperGroup", get_command(found))
        single = typer.Typer(add_completion=False)
        single.command(cmd_name)(found)
        return cast("TyperCommand", get_command(single))


app = typer.Typer(
    name="exo",
    cls=_Lazy,
    help="One AI cluster from the machines you already own. `honcho start` runs a node: nats, master, worker and api.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]  typer calls it
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. What exo refuses is one line on standard error and exit code 1."""
    try:
        app()
    except ExoError as error:
        print(f"exo: {error}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, Fatal) else 1)
