"""`exo link` and `exo unlink`: prefill on one instance, decode on another."""

from typing import Annotated
from urllib.parse import quote

import typer

from exo.cli.client import ask, event_of

WAIT = 10.0
"""Seconds for the decision."""


def link(
    prefill: Annotated[str, typer.Argument(help="Instance that computes the prompts, by the beginning of its id.")],
    decode: Annotated[str, typer.Argument(help="Instance that answers, by the beginning of its id.")],
) -> None:
    """Have one instance of a model compute the prompts, and another one write the answers.

    `exo status` shows the instances that there are. A prompt goes to the first; what it has computed of it goes to the
    second, which goes on from there.
    """
    answer = ask("POST", _path(decode), params={"wait": WAIT}, json={"prefill_id": prefill})
    event = event_of("InstancesLinked", answer)
    print(f"{event['prefill_id']} prefills for {event['decode_id']}")


def unlink(
    decode: Annotated[str, typer.Argument(help="Instance that answers, by the beginning of its id.")],
) -> None:
    """Have an instance compute its prompts by itself again."""
    event = event_of("InstancesUnlinked", ask("DELETE", _path(decode), params={"wait": WAIT}))
    print(f"{event['decode_id']} prefills by itself")


def _path(decode: str) -> str:
    return f"/instance/{quote(decode, safe='')}/prefill"
