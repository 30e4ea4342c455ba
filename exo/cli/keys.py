"""`exo keys`: who may use the cluster's API.

They are made and revoked over NATS, not over the API: so there is a way to the first key, and to the next one where all
are lost. Whoever reaches NATS can do everything anyway.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from exo.config import Settings, load_settings
from exo.domain.ids import KeyName
from exo.domain.keys import Key, digest_of
from exo.domain.messages.commands import CreateKey, RevokeKey
from exo.domain.messages.events import CommandRejected
from exo.errors import ExoError, Rejected

if TYPE_CHECKING:
    from exo.bus.client import Bus

T = TypeVar("T")
PATIENCE = 10.0
"""Seconds for NATS and a master to answer."""
PAUSE = 0.05
PREFIX = "exo-"
"""What every secret begins with, so that one that lies about is seen for what it is."""


class ScopeName(StrEnum):
    """A Scope, as typer reads it."""

    inference = "inference"
    read = "read"
    admin = "admin"


app = typer.Typer(name="keys", add_completion=False, help="Make, list and revoke API keys.", no_args_is_help=True)


@app.command("create")
def create_key(
    name: Annotated[
        str | None, typer.Option(help="What usage and log call it; without it, one is made up.", show_default=False)
    ] = None,
    scopes: Annotated[
        list[ScopeName] | None,
        typer.Option("--scope", help="inference: use models; read: see State, log and usage; admin: everything."),
    ] = None,
) -> None:
    """Make a key. It is printed once, and kept nowhere: the cluster has its SHA-256 only."""
    secret = PREFIX + secrets.token_urlsafe(32)
    try:
        command = CreateKey(
            key=KeyName(name or f"key-{secrets.token_hex(4)}"),
            digest=digest_of(secret.encode()),
            scopes=tuple(one.value for one in scopes or [ScopeName.inference]),
        )
    except ValidationError:
        raise Rejected(f"--name {name}: 1 to 64 letters, digits and . _ - @ + may stand in it") from None
    _run(_sent(load_settings(), command))
    typer.echo(f"the key '{command.key}', for {' and '.join(command.scopes)}; it is shown this once:", err=True)
    typer.echo(secret)


@app.command("list")
def list_keys(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")] = False) -> None:
    """List all keys that were ever made."""
    from exo.cli.log.view import local_time

    keys = _run(_all_keys(load_settings()))
    if as_json:
        typer.echo(json.dumps([key.model_dump(mode="json", exclude={"digest"}) for key in keys]))
        return
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a pipe has no edge to cut names at
    table = Table("key", "for", "made", "revoked", box=None)
    for key in keys:
        revoked = "" if key.revoked_at is None else local_time(key.revoked_at)
        table.add_row(key.name, ", ".join(key.scopes), local_time(key.created_at), revoked)
    console.print(table)


@app.command("revoke")
def revoke_key(name: Annotated[str, typer.Argument(help="The key, as `exo keys list` calls it.")]) -> None:
    """Revoke a key, for ever: from now on no request comes in with it. Its name is not given again."""
    _run(_sent(load_settings(), RevokeKey(key=KeyName(name))))
    typer.echo(f"the key '{name}' is revoked")


async def _sent(settings: Settings, command: CreateKey | RevokeKey) -> None:
    """Raises Rejected where the master refuses."""
    from exo.bus.inbox import send_command
    from exo.bus.queries import ask_outcome

    async with _connected(settings) as bus:
        command_id = await send_command(bus, _sender(settings), command)
        while not (events := await ask_outcome(bus, command_id, PATIENCE)):  # noqa: ASYNC110  of another process
            await asyncio.sleep(PAUSE)
    for recorded in events:
        if isinstance(recorded.entry.event, CommandRejected):
            raise Rejected(recorded.entry.event.reason, code=recorded.entry.event.code)


async def _all_keys(settings: Settings) -> list[Key]:
    from exo.bus.queries import ask_state

    async with _connected(settings) as bus:
        state = await ask_state(bus, PATIENCE)
    return sorted(state.keys.values(), key=lambda key: key.created_at)


@asynccontextmanager
async def _connected(settings: Settings) -> "AsyncGenerator[Bus]":
    """A connection for a few seconds. Raises ExoError where NATS or a master stays away."""
    from exo.bus.address import without_password
    from exo.bus.client import connect

    try:
        async with asyncio.timeout(PATIENCE):
            bus = await connect(settings.nats_url, settings.cluster, "exo keys")
            try:
                yield bus
            finally:
                await bus.close()
    except TimeoutError:
        url = without_password(settings.nats_url)
        reason = f"NATS at {url}, or a master there, did not answer within {PATIENCE:.0f} s: start the node first"
        raise ExoError(reason) from None


def _sender(settings: Settings) -> str:
    """This node, where there is one."""
    from exo.node.identity import FILE, node_id

    return node_id(settings.home) if (settings.home / FILE).is_file() else "cli"


def _run(work: Coroutine[object, object, T]) -> T:
    """What `work` gives. What the connection says on the way is of no use here."""
    from exo.log_setup import setup_logging

    setup_logging("ERROR")
    return asyncio.run(work)
